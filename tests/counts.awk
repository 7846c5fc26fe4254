# What a test program's output counts: passed, failed and skipped tests, as cmocka, Python's unittest and scripts ("3 passed, 0 failed",
# "skipped: why") say. A program that ends with another exit code than 0 (-v code=), or that counts nothing, has failed.
match($0, /^\[  (PASSED|SKIPPED|FAILED) *\].* [0-9]+ test\(s\)/) {
  $0 = substr($0, 1, RLENGTH)
  n[$2] += $(NF - 1)
}
match($0, /[0-9]+ passed, [0-9]+ failed/) {
  split(substr($0, RSTART), word)
  n["PASSED"] += word[1]
  n["FAILED"] += word[3]
}
# A test whose subtests fail has many of these lines.
/^(FAIL|ERROR): [A-Za-z_0-9]+ \(/ && !seen[runs, $2, $3]++ {
  n["PASSED"]--
  n["FAILED"]++
}
/^Ran [0-9]+ tests? in/ {
  n["PASSED"] += $2
  runs++
}
match($0, /^OK \(skipped=[0-9]+/) {
  n["SKIPPED"] += substr($0, 13, RLENGTH - 12)
  n["PASSED"] -= substr($0, 13, RLENGTH - 12)
}
/^skipped: / { reasons++ }
END {
  if (!n["PASSED"] && !n["SKIPPED"] && reasons) n["SKIPPED"] = 1
  if (!n["FAILED"] && (code != 0 || !(n["PASSED"] + n["SKIPPED"]))) n["FAILED"] = 1
  print n["PASSED"] + 0, n["FAILED"] + 0, n["SKIPPED"] + 0
}
