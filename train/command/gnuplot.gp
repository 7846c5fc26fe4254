# What every picture begins with: the paper, plain axes, and colours. plot.c writes these in front of it:
#   png       1: PNG, else SVG
#   height    in points; the width is 960

set encoding utf8
if (png) {
  if (system("fc-list 2>/dev/null || echo unknown") eq "") { printerr "no font is there for the text of a PNG"; exit status 1 }
  set terminal pngcairo size 1440,1.5*height noenhanced background rgb '#ffffff' font 'DejaVu Sans,18'
  set termoption fontscale 1
  set termoption linewidth 1.5
} else {
  set terminal svg dynamic size 960,height noenhanced background rgb '#ffffff' font 'DejaVu Sans,14'
}
set border 3 lc rgb '#606060'
set tics nomirror out scale 0.6 textcolor rgb '#303030'
set grid back lt 1 lw 0.6 lc rgb '#e4e4e4'

# Readable beside each other for the colour-blind too.
hues = '0072B2 D55E00 009E73 CC79A7 E69F00 56B4E9 000000'

