# The picture that `minnow plot` draws: loss, test accuracy and learning rate over the optimizer steps.
#
# gnuplot.gp stands before it, and these, which plot.c writes:
#   $train, $test      one series of points a run, as gnuplot's index counts them: step, loss, learning rate in
#                      $train and accuracy in percent in $test
#   name, last, end    arrays over the runs, from 1: a run's path, its last accuracy (NaN: none), the loss at which its curve ends
#                      (-1: none)
#   trains, tests      arrays: whether a run has points in $train, in $test
#   pace               steps an epoch; 0: unknown, or the runs' differ
#   points             array: how many points a run has in $train
#   runs               how many there are

# What the axes span. stats sets no variable name_max if a column has no number. The loss is on a logarithmic axis if it spans more than 20 times.
larger(a, b) = a > b ? a : b
stats $train using 1 nooutput name 'train_step'
stats $test using 1 nooutput name 'test_step'
stats $train using 2 nooutput name 'train_loss'
stats $test using 2 nooutput name 'test_loss'
stats $train using 3 nooutput name 'rate'
stats $test using 3 nooutput name 'accuracy'
last_step = larger(1, larger(exists('train_step_max') ? train_step_max : 1, exists('test_step_max') ? test_step_max : 1))
has_loss = exists('train_loss_max') || exists('test_loss_max')
least_loss = -larger(exists('train_loss_max') ? -train_loss_min : -1e300, exists('test_loss_max') ? -test_loss_min : -1e300)
most_loss = larger(exists('train_loss_max') ? train_loss_max : 0, exists('test_loss_max') ? test_loss_max : 0)
logarithmic = has_loss && least_loss > 0 && most_loss > 20*least_loss
has_accuracy = exists('accuracy_max')

# Which runs have points in $train, in $test, those whose losses end highest first: "2 1 3".
trained = ''
tested = ''
do for [k = 1:runs] {
  top = 1
  do for [i = 2:runs] { top = end[i] > end[top] ? i : top }
  if (trains[top]) { trained = trained.' '.top }
  if (tests[top]) { tested = tested.' '.top }
  end[top] = -2
}

# The names stand to the right of the curves, in the order in which the losses end there, in every panel. They are cut if
# they would take more than a third of the width.
short(text) = strlen(text) > 34 ? '…'.text[strlen(text)-32:*] : text
widest = runs == 1 ? 8 : 1
if (runs > 1) { do for [i = 1:runs] { widest = strlen(short(name[i])) > widest ? strlen(short(name[i])) : widest } }
right = 0.95 - 0.0088 * (widest + (runs > 1 && has_accuracy ? 9 : 0))
set key at screen right + 0.005, graph 1 left top Left reverse samplen 1.2 spacing 1.15 textcolor rgb '#303030'
set lmargin at screen 0.115
set rmargin at screen right
set xrange [0:last_step]

# The number in a word of `trained` or `tested`. For an empty list gnuplot calls it once with '' and draws nothing.
at(run) = strlen(run) ? run + 0 : 1

# One hue a run. A run alone has the second for its test set.
hue(run) = word(hues, (at(run) - 1) % words(hues) + 1)
test_hue(run) = runs == 1 ? word(hues, 2) : hue(run)
test_dash = runs == 1 ? 1 : 2
# A title of '' makes no entry: the run has one by its training curve, or has no last accuracy.
train_title(run) = strlen(run) == 0 ? '' : runs == 1 ? 'training' : short(name[at(run)])
test_title(run) = strlen(run) == 0 ? '' : runs == 1 ? 'test' : strstrt(' '.trained.' ', ' '.run.' ') ? '' : short(name[at(run)])
accuracy_title(run) = last[at(run)] == last[at(run)] \
  ? sprintf('%s%.2f %%', runs == 1 ? '' : short(name[at(run)]).'  ', last[at(run)]) : ''

# About four round numbers on an axis from `least` to `most`.
quarter(least, most) = larger(most - least, larger(1e-3 * abs(most), 1e-12)) / 4
decade(q) = 10.0**floor(log10(q))
tick_of(q) = decade(q) * (q > 5 * decade(q) ? 10 : q > 2 * decade(q) ? 5 : q > decade(q) ? 2 : 1)

set multiplot

# Epochs are on top of the first panel.
epochs = pace > 0 && last_step >= pace
set tmargin at screen epochs ? 0.905 : 0.965
if (epochs) {
  set xtics nomirror
  set x2range [0:last_step/pace]
  set x2tics nomirror out scale 0.6 textcolor rgb '#303030'
  set x2label 'epoch' offset 0,-0.2 textcolor rgb '#303030'
  set border 7
}
set bmargin at screen has_accuracy ? 0.535 : 0.37
# The labels stand one above the other, however wide the numbers beside them are.
set label 1 runs == 1 ? 'loss' : 'loss (dashed: test)' at screen 0.022, graph 0.5 center rotate textcolor rgb '#303030'
set format x ''
set format y '%h'
if (logarithmic) { set logscale y }
if (!has_loss) { set yrange [0:1] }
# The raw losses, faint and lowest; the smoothed ones; the test losses. A Bézier curve of n points is a mean over about √n of them,
# of 1000 over a thirtieth of the run; so of a run with 1500 points or more it takes every second, third … one.
set samples 500
plot for [run in trained] $train index (at(run)-1) using 1:2 with lines lw 1 lc rgb '#C0'.hue(run) notitle, \
     for [run in trained] $train index (at(run)-1) every (1 + points[at(run)]/1500) using 1:2 smooth bezier with lines lw 2.2 lc rgb '#'.hue(run) \
         title train_title(run), \
     for [run in tested] $test index (at(run)-1) using 1:2 with linespoints dt test_dash lw 1.8 pt 7 ps 0.45 \
         lc rgb '#'.test_hue(run) title test_title(run)
unset logscale y
set yrange [*:*]
unset x2tics
unset x2label
set border 3

if (has_accuracy) {
  set tmargin at screen 0.495
  set bmargin at screen 0.27
  set label 1 'test accuracy'
  set format y '%h %%'
  tick = tick_of(quarter(accuracy_min, accuracy_max))
  set yrange [tick*floor(accuracy_min/tick):tick*larger(ceil(accuracy_max/tick), floor(accuracy_min/tick) + 1)]
  set ytics tick
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
  # Logarithmic: one decade at least, three at most, since a cosine ends near 0.
  if (exists('rate_max') && rate_max > 0) {
    set logscale y
    set yrange [(rate_min > 1e-3*rate_max ? (rate_min < 0.1*rate_max ? rate_min : 0.1*rate_max) : 1e-3*rate_max):1.3*rate_max]
    set ytics autofreq
  }
  unset key
  plot for [run in trained] $train index (at(run)-1) using 1:3 with lines lw 1.8 lc rgb '#'.hue(run) notitle
}

unset multiplot
unset output
