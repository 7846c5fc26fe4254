# The picture that `minnow plot` draws: loss, test accuracy and learning rate over the optimizer steps.
#
# plot.c writes these in front of it:
#   $train, $test      one series of points a run, as gnuplot's index counts them: step, loss, learning rate in
#                      $train and accuracy in percent in $test, smoothed loss
#   name, last         arrays over the runs, from 1: what the legend calls a run, its last accuracy (NaN: none)
#   trained, tested    which runs have points in $train, in $test: "1 2 3"
#   runs, last_step, logarithmic, has_loss, has_accuracy, accuracy_least, accuracy_most, rate_most, png

set encoding utf8
if (png) {
  set terminal pngcairo size 1440,1080 noenhanced background rgb '#ffffff' font 'DejaVu Sans,18'
  set termoption fontscale 1
  set termoption linewidth 1.5
} else {
  set terminal svg dynamic size 960,720 noenhanced background rgb '#ffffff' font 'DejaVu Sans,14'
}
set border 3 lc rgb '#606060'
set tics nomirror out scale 0.6 textcolor rgb '#303030'
set grid back lt 1 lw 0.6 lc rgb '#e4e4e4'
set key noopaque samplen 2 spacing 1.15 textcolor rgb '#303030'
set lmargin at screen 0.115
set rmargin at screen 0.97
set xrange [0:last_step]

# The number in a word of `trained` or `tested`. For an empty list gnuplot asks once, with '', and draws nothing.
at(run) = strlen(run) ? run + 0 : 1

# One hue a run, readable beside each other for the colour-blind too. A run alone has the second for its test set.
hues = '0072B2 D55E00 009E73 CC79A7 E69F00 56B4E9 000000'
hue(run) = word(hues, (at(run) - 1) % words(hues) + 1)
test_hue(run) = runs == 1 ? word(hues, 2) : hue(run)
test_dash = runs == 1 ? 1 : 2
# A title of '' makes no entry in the legend: the run has one by its training curve, or has no last accuracy.
train_title(run) = strlen(run) == 0 ? '' : runs == 1 ? 'training' : name[at(run)]
test_title(run) = strlen(run) == 0 ? '' : runs == 1 ? 'test' : strstrt(' '.trained.' ', ' '.run.' ') ? '' : name[at(run)]
accuracy_title(run) = last[at(run)] == last[at(run)] \
  ? sprintf('%s, last %.2f %%', runs == 1 ? 'test' : name[at(run)], last[at(run)]) : ''

# About four round numbers on an axis from `least` to `most`.
larger(a, b) = a > b ? a : b
quarter(least, most) = larger(most - least, larger(1e-3 * abs(most), 1e-12)) / 4
decade(q) = 10.0**floor(log10(q))
tick_of(q) = decade(q) * (q > 5 * decade(q) ? 10 : q > 2 * decade(q) ? 5 : q > decade(q) ? 2 : 1)

set multiplot

set tmargin at screen 0.965
set bmargin at screen has_accuracy ? 0.535 : 0.37
# The labels stand one above the other, however wide the numbers beside them are.
set label 1 runs == 1 ? 'loss' : 'loss (dashed: test)' at screen 0.022, graph 0.5 center rotate textcolor rgb '#303030'
set format x ''
set format y '%h'
if (logarithmic) { set logscale y }
if (!has_loss) { set yrange [0:1] }
set key top right
# The raw losses, faint and lowest; the smoothed ones; those of the test sets.
plot for [run in trained] $train index (at(run)-1) using 1:2 with lines lw 1 lc rgb '#C0'.hue(run) notitle, \
     for [run in trained] $train index (at(run)-1) using 1:4 with lines lw 2.2 lc rgb '#'.hue(run) \
         title train_title(run), \
     for [run in tested] $test index (at(run)-1) using 1:2 with linespoints dt test_dash lw 1.8 pt 7 ps 0.45 \
         lc rgb '#'.test_hue(run) title test_title(run)
unset logscale y
set yrange [*:*]

if (has_accuracy) {
  set tmargin at screen 0.495
  set bmargin at screen 0.27
  set label 1 'test accuracy'
  set format y '%h %%'
  tick = tick_of(quarter(accuracy_least, accuracy_most))
  set yrange [tick*floor(accuracy_least/tick):tick*ceil(accuracy_most/tick)]
  set ytics tick
  set key bottom right
  plot for [run in tested] $test index (at(run)-1) using 1:3 with linespoints lw 1.8 pt 7 ps 0.45 \
       lc rgb '#'.test_hue(run) title accuracy_title(run)
}

if (words(trained) > 0) {
  set tmargin at screen has_accuracy ? 0.23 : 0.32
  set bmargin at screen 0.105
  set label 1 'learning rate'
  set format x '%h'
  set xlabel 'optimizer step' textcolor rgb '#303030'
  set format y '%h'
  top = rate_most > 0 ? 1.08 * rate_most : 1
  tick = tick_of(quarter(0, top))
  set yrange [0:tick*ceil(top/tick)]
  set ytics tick
  unset key
  plot for [run in trained] $train index (at(run)-1) using 1:3 with lines lw 1.8 lc rgb '#'.hue(run) notitle
}

unset multiplot
unset output
