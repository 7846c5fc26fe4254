# One chart of the picture that picture.py draws: milliseconds as bars, one below the other.
#
# train/command/gnuplot.gp stands before the first, and these, which picture.py writes, before each:
#   title, top, bottom   what stands above the bars, and where they are, in points from the upper edge of the picture
#   slots                how many names there are, one below the other
#   name, ms, value      arrays over the slots, from 1: the name; the length of its bar, NaN: a heading; the number beside
#   ours                 … whether it is minnow's
#   widest               characters of the longest name of all charts

set lmargin at screen 0.03 + 0.0088 * widest
set rmargin at screen 0.97
set tmargin at screen 1 - 1.0 * top / height
set bmargin at screen 1 - 1.0 * bottom / height
unset label
unset object
set label 1 title at screen 0.02, screen 1 - (top - 20.0) / height left textcolor rgb '#303030'
set border 3 lc rgb '#606060'
set grid xtics noytics
unset ytics
set ytics scale 0 ('' 0)
most = 0
do for [i = 1:slots] {
  if (ms[i] == ms[i]) {
    most = ms[i] > most ? ms[i] : most
    set ytics add (name[i] i)
    set object i rectangle from 0, i - 0.36 to ms[i], i + 0.36 fillstyle solid noborder \
        fillcolor rgb '#'.(ours[i] ? word(hues, 1) : 'A0A0A0')
    set label i + 1 value[i] at ms[i], i left offset character 0.5, 0 textcolor rgb '#303030'
  } else {
    set label i + 1 name[i] at 0, i left offset character 0.5, 0 textcolor rgb '#707070'
  }
}
set xrange [0:1.1 * most]
set yrange [slots + 0.5:0.5]
set xlabel 'milliseconds' offset 0, 0.4 textcolor rgb '#303030'
plot NaN notitle
