#!/usr/bin/env python3
"""Checks that the tests notice errors: changes the sources in one place at a time, by the rules below, and expects a test to fail.
Prints a line for each change (mutant), with the test that caught it or SURVIVED, and last the shares that were caught, by folder.
What does not compile, or compiles to the same code, does not count.

  tests/mutants.py                              a hundred mutants of kernels, layers and engine
  SEED=7 COUNT=50 tests/mutants.py data train   fifty others, of these folders; COUNT=all: all there are
  tests/mutants.py kernels/gemm.c layers/add.c:12    of a file and of a line
  AT_LEAST=80 tests/mutants.py                  exit code 1 if fewer than 80 % are caught
  LONGEST=60 tests/mutants.py layers/add.c:12   also by tests that take up to a minute, to look twice at what survived

A mutant is tried by the C tests that take less than LONGEST=2 seconds, and by those that share a word with the file's path, as test_gemm
and test_ranks.sh do with kernels/gemm.c and engine/ranks, the quickest first. How long they take is measured once and kept in
build/mutants.seconds. TEST_JOBS mutants are tried at a time, each in its own copy of the sources.
"""
import filecmp, multiprocessing.pool, os, pathlib, random, re, subprocess, sys, tempfile, time

DEFAULTS = "COUNT 100", "SEED 1", "AT_LEAST 0", "LONGEST 2"
COUNT, SEED, AT_LEAST, LONGEST = (float(os.environ.get(*it.split()).replace("all", "inf")) for it in DEFAULTS)
JOBS = int(os.environ.get("TEST_JOBS") or len(os.sched_getaffinity(0)) + 1)
os.environ.update(OMP_WAIT_POLICY="passive", MINNOW="build/minnow", BUILD="build", RANKS="2")
MAKE = "make -s -j2 CUDA=0 BUILD=build OPTIMIZE=-O1 WERROR=0 build/minnow build/tests/ranks/train".split()

# What stays: comments, texts, characters, lines of the preprocessor, what no caller or no result shows, and the lengths of arrays.
HIDDEN = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|^[ \t]*\#(?:\\\n|[^\n])*
  |\b(?:MN_REQUIRE|__builtin_prefetch)\([^;]*;
  |^[ ]+(?:(?:static|const|unsigned|struct)[ ])*(?!return|else)[a-z]\w*[ ]\**\w+\[[^]]*\]""", re.S | re.M | re.X)
FUNCTION = re.compile(r"^[A-Za-z_][^;{}]*\) \{\n(.*?)^\}", re.S | re.M)
OTHER = dict(zip("< <= > >= == != && || + - * / % += -= & | << >>".split(), "<= < >= > != == || && - + + * / -= += | & >> <<".split()))
KEEP = r"(?!\w*(?:free|close|destroy|unlink)\w*\(|(?:if|for|while|return|else|switch|case)\b)"
RULES = ( # what is replaced is the last group, or else the whole
  (r"(?<= )[-+*/%<>=!&|]+(?=\s)", lambda old: OTHER.get(old, old)), (r" [-+] 1\b(?!\.)", ""), (r"!(?=[\w(])", ""),
  (r"(?<![\w.{~])\d+(?![\w.])", lambda old: "0" if old == "1" else str(int(old) + 1)), (r"(?:break|continue);", ";"),
  (r"(?<= )\?(?=\s)", "&& 0 ?"), (r"(?<= )\?(?=\s)", "|| 1 ?"), (r"\bif \(", "if (1 || "), (r"\bif \(", "if (0 && "),
  (r"\bwhile \(", "while (0 && "), (r"\breturn (?!0;|NULL;|MN_OK;)[^;{}]*;", "return 0;"), (r"\bMN_TRY\([^;{}]*\);", ";"),
  (rf"^ +({KEEP}(?:\(void\))?[\w*(](?:[\w.>*-]|\[[^]]*\])*(?:\([^;{{}}]*\)| [-+*/%|&]?= [^;{{}}]*);)$", ";"))

def mutants(file, only):
  """Those of a file, or of its line `only`: (file, line, begin, end, old, new); and how many lines its functions have."""
  text, found, lines = pathlib.Path(file).read_text(), set(), 0
  seen = HIDDEN.sub(lambda part: re.sub(r"[^\n]", "~", part[0]), text)
  for function in FUNCTION.finditer(seen):
    lines += function[1].count("\n")
    for pattern, new in RULES:
      for place in re.compile(pattern, re.M).finditer(seen, *function.span(1)):
        begin, end = place.span(place.re.groups)
        line, old = text.count("\n", 0, begin) + 1, text[begin:end]
        found.add((file, line, begin, end, old, new(old) if callable(new) else new))
  return sorted(it for it in found if it[4] != it[5] and only in ("", str(it[1]))), lines

def draw(names):
  """COUNT mutants, of each file in proportion to its lines. layers/stack.c, which needs a GPU, only by its name."""
  files = sorted((str(path), line) for name, _, line in (name.partition(":") for name in names) for path in (
    set(pathlib.Path(name).glob("*.[ch]")) - {pathlib.Path("layers/stack.c")} if os.path.isdir(name) else [pathlib.Path(name)]))
  pools, drawn, dice = [mutants(*file) for file in files], [], random.Random(SEED)
  while len(drawn) < COUNT and (pools := [pool for pool in pools if pool[0]]):
    pool = dice.choices(pools, [lines for _, lines in pools])[0][0]
    drawn.append(pool.pop(dice.randrange(len(pool))))
  return drawn

def succeeds(folder, seconds, *command):
  """The limits end what a test leaves running when its time is over, and a mutant that wants all memory."""
  limits = ("prlimit", "--cpu=300", "--as=17179869184", "--core=0", "timeout", "-k", "5", str(seconds))
  return subprocess.run((*limits, *command), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0

def attempt(mutant, whole, copies, seconds):
  """What comes of it. A test that fails without it too does not count."""
  file, _, begin, end, _, new = mutant
  words, copy, text = set(re.findall("[a-z]+", file)), copies.pop(), pathlib.Path(file).read_text()
  tests = [test for test in sorted(seconds, key=seconds.get) if seconds[test] < LONGEST or words & set(re.findall("[a-z]+", test[6:]))]
  (copy / file).write_text(text[:begin] + new + text[end:])
  try:
    if not succeeds(copy, 600, *MAKE):
      return "does not compile"
    if filecmp.cmp(copy / "build/libminnow.a", whole / "build/libminnow.a", shallow=False):
      return "the same code"
    for i, test in enumerate(tests):
      if i % 8 == 0 and not succeeds(copy, 600, *MAKE, *tests[i:i + 8]):
        return "does not compile"
      if not succeeds(copy, min(10 + 10 * seconds[test], 600), test) and succeeds(whole, 600, test):
        return f"caught by {os.path.basename(test)}"
    return "SURVIVED"
  finally:
    (copy / file).write_text(text)
    copies.append(copy)

def main():
  os.chdir(pathlib.Path(__file__).resolve().parent.parent)
  drawn, results = draw(sys.argv[1:] or ["kernels", "layers", "engine"]), []
  with tempfile.TemporaryDirectory(prefix="minnow_mutants.") as work, multiprocessing.pool.ThreadPool(JOBS) as pool:
    whole, *copies = (pathlib.Path(work, str(number)) for number in range(JOBS + 1))
    whole.mkdir()
    subprocess.run(["cp", "-a", "Makefile", "kernels", "engine", "layers", "data", "train", "tests", whole], check=True)
    programs = sorted(f"build/tests/{path.stem}" for path in pathlib.Path("tests").glob("test_*.c"))
    if not succeeds(whole, 600, *MAKE, *programs):
      sys.exit("mutants: it does not compile without any mutant")
    for copy in copies:
      subprocess.run(["cp", "-a", whole, copy], check=True)

    def measure(program):
      began = time.monotonic()
      succeeds(whole, LONGEST, program)
      return program, f"{time.monotonic() - began:.2f}"
    kept = pathlib.Path("build/mutants.seconds")
    known = dict(map(str.split, kept.read_text().splitlines())) if kept.exists() else {}
    known.update(pool.imap(measure, [program for program in programs if program not in known]))
    os.makedirs("build", exist_ok=True)
    kept.write_text("".join(f"{program} {known[program]}\n" for program in programs))
    seconds = {program: float(known[program]) for program in programs} | {str(path): 60 for path in pathlib.Path("tests").glob("test_*.sh")}
    for mutant, end in zip(drawn, pool.imap(lambda mutant: attempt(mutant, whole, copies, seconds), drawn)):
      file, line, _, _, old, new = mutant
      print(f"{file}:{line}: {' '.join(old.split())} → {new.strip(';') or 'nothing'}: {end}", flush=True)
      results.append((os.path.dirname(file), end.split()[0]))
  for folder in *sorted({folder for folder, _ in results}), "":
    caught, survived = (sum(folder in ("", at) and end == which for at, end in results) for which in ("caught", "SURVIVED"))
    print(f"{folder or 'all'}: {caught} of {caught + survived} caught, {(share := 100 * caught / max(caught + survived, 1)):.1f} %")
  print(f"{caught} passed, {survived if share < AT_LEAST else 0} failed")
  return share < AT_LEAST

sys.exit(main())
