"""Predictions of one block and a head on a CPU: minnow's predictor beside a plain C loop and onnxruntime's session.
`make predicting`; `python3 tests/peers/predicting.py build/tests/predicting [--seconds 0.2] [--turns 7]`.

Each is timed in turn, for a moment, several times; the medians of these stand in the table, in microseconds a call.
onnxruntime is called from Python with bound inputs and outputs, so that its column has about a microsecond of Python.
Without it (pip install onnxruntime onnx numpy) its columns are left out. The server is threads that each call with a
predictor of their own on one model: its column says calls a second of all of them."""
import argparse
import statistics
import subprocess
import time

CASES = [(16, 64, 3), (128, 512, 10)]
ROWS = [1, 8, 64]
GROUPS = 8


def onnx_model(inputs, channels, outputs):
    import numpy
    from onnx import TensorProto, helper, numpy_helper
    random = numpy.random.default_rng(0)
    constants = {
        "w": random.normal(size=(inputs, channels)) / inputs**0.5, "b": numpy.zeros(channels), "gamma": numpy.ones(channels),
        "beta": numpy.zeros(channels), "v": random.normal(size=(channels, outputs)) / channels**0.5, "c": numpy.zeros(outputs),
        "one": numpy.ones(GROUPS), "nil": numpy.zeros(GROUPS)}
    kept = [numpy_helper.from_array(value.astype("float32"), name) for name, value in constants.items()]
    kept += [numpy_helper.from_array(numpy.array(shape), name) for name, shape in
             {"grouped": [0, GROUPS, channels // GROUPS], "flat": [0, channels]}.items()]
    node = helper.make_node
    nodes = [node("Gemm", ["x", "w", "b"], ["z"]), node("Reshape", ["z", "grouped"], ["zg"]),
             node("InstanceNormalization", ["zg", "one", "nil"], ["ng"]), node("Reshape", ["ng", "flat"], ["n"]),
             node("Mul", ["n", "gamma"], ["m"]), node("Add", ["m", "beta"], ["v0"]),
             node("LeakyRelu", ["v0"], ["a"], alpha=0.01), node("Add", ["a", "a"], ["y0"]), node("Gemm", ["y0", "v", "c"], ["y"])]
    shape = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])
    graph = helper.make_graph(nodes, "block", [shape("x", inputs)], [shape("y", outputs)], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


class Onnx:
    def __init__(self, case, rows, threads):
        import numpy
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(onnx_model(*case), options, providers=["CPUExecutionProvider"])
        self.bound = self.session.io_binding()
        x, y = numpy.zeros((rows, case[0]), "float32"), numpy.zeros((rows, case[2]), "float32")
        self.bound.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x))
        self.bound.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(y))

    def time(self, seconds):
        times, until = [], time.perf_counter() + seconds
        while time.perf_counter() < until:
            start = time.perf_counter()
            for _ in range(64):
                self.session.run_with_iobinding(self.bound)
            times.append((time.perf_counter() - start) / 64 * 1e6)
        return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args()
    program = subprocess.Popen([args.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def here(case, rows, way, threads=1):
        program.stdin.write(f"{case[0]} {case[1]} {case[2]} {rows} {way} {threads} {int(args.seconds * 1000)}\n")
        program.stdin.flush()
        return float(program.stdout.readline())

    try:
        import onnx, onnxruntime  # noqa: F401
        peers = {"onnxruntime, 1 thread": 1, "2 threads": 2}
    except ImportError:
        peers = {}
        print("no onnxruntime and onnx here: left out\n")
    print("| net | rows | minnow | 2 threads | plain C | " + "".join(f"{name} | " for name in peers) + "a server's 2 threads, calls/s | 1 thread |")
    print("|---" * (7 + len(peers)) + "|")
    for case in CASES:
        for rows in ROWS:
            ways = {"minnow": lambda: here(case, rows, "minnow"), "minnow2": lambda: here(case, rows, "minnow2"), "plain": lambda: here(case, rows, "plain")}
            for name, threads in peers.items():
                ways[name] = lambda of=Onnx(case, rows, threads): of.time(args.seconds)
            times = {way: [] for way in ways}
            for _ in range(args.turns):
                for way, run in ways.items():
                    times[way].append(run())
            medians = [statistics.median(of) for of in times.values()]
            two = statistics.median(here(case, rows, "minnow", 2) for _ in range(args.turns))
            print(f"| {case[0]} → {case[1]} → {case[2]} | {rows} | " + "".join(f"{t:.2f} | " for t in medians) + f"{two:.0f} | {1e6 / medians[0]:.0f} |", flush=True)


main()
