"""Device batches as Python's array libraries take them, over the stand-in for the CUDA driver that forebay-gpu is tested with.

Its device memory is host memory, its streams are threads that work late and in pieces, and it notes every access to memory that isn't there
or isn't the asker's: a hand-over that forgets an order gives wrong bytes, or a violation.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "gpu" / "tests" / "driver"

#: What the scripts begin with: a lake of 400 rows, the stand-in, and a consumer that speaks DLPack.
CONSUMER = """
import ctypes, os, sys
import numpy as np
import forebay as fb
from forebay._loader import Loader

cuda = ctypes.CDLL("libcuda.so.1")
DELAY_US, VIOLATIONS, DEVICE_BYTES = 0, 6, 7

class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]

pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

def new_stream():
    stream = ctypes.c_void_p()
    assert cuda.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0) == 0
    return stream.value

def read_later(tensor, stream):
    "Asks `stream` to copy a tensor to host memory, and lets go of it at once."
    capsule = tensor.__dlpack__(stream=stream)
    dl = DLTensor.from_address(pointer(capsule, b"dltensor"))
    assert dl.device_type == 2 and tensor.__dlpack_device__() == (2, dl.device_id) and dl.data % 256 == 0 and dl.byte_offset == 0
    shape = [dl.shape[axis] for axis in range(dl.ndim)]
    kind = {0: "i", 1: "u", 2: "f", 6: "b"}[dl.code]
    out = np.empty(shape, np.dtype(f"{kind}{dl.bits // 8}"))
    assert cuda.cuMemcpyDtoHAsync_v2(ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(dl.data), ctypes.c_size_t(out.nbytes), ctypes.c_void_p(stream)) == 0
    return out

def finish():
    cuda.mock_finish()
    assert cuda.mock_get(VIOLATIONS) == 0, "work touched memory that it must not"

class Device(Loader):
    "Batches as the native tensors that they are."
    def __init__(self, ds, batch_size, **options):
        super().__init__(ds._view(), batch_size, device=0, **options)
    def _array(self, native):
        return native if native.on_device else native.numpy()
    def _channels_first(self, array):
        return array

ds = fb.open(sys.argv[1])
pixels = lambda ids: (ids[:, None] * 31 + np.arange(3000)) .astype(np.uint8)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The folder of the stand-in, built with the C compiler that Rust links with."""
    compiler = shutil.which("cc")
    assert compiler, "a C compiler named cc is needed, as it is for building forebay"
    folder = tmp_path_factory.mktemp("driver")
    sources = [str(SOURCES / name) for name in ("stream.c", "memory.c", "kernels.c", "device.c")]
    command = [compiler, "-shared", "-fPIC", "-O1", "-pthread", "-ffp-contract=off", "-o", str(folder / "libcuda.so.1"), *sources]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def consume(driver, script, tmp_path):
    """Runs a script behind :data:`CONSUMER`, with the stand-in as its driver."""
    import os

    import numpy as np

    import forebay as fb

    ds = fb.create(str(tmp_path / "lake"), {"row": "uint8[3000]", "id": "int64", "words": "int32[?]"})
    for start in range(0, 400, 100):
        ids = np.arange(start, start + 100)
        rows = (ids[:, None] * 31 + np.arange(3000)).astype(np.uint8)
        ds.append({"row": rows, "id": ids, "words": [np.arange(i % 7, dtype=np.int32) + np.int32(i) for i in ids]})
    ds.commit("rows")

    def run(source: str) -> None:
        done = script(CONSUMER + source, ds.url, env={**os.environ, "LD_LIBRARY_PATH": str(driver)})
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["done"]

    return run


def test_a_consumer_that_lets_go_at_once_reads_right_bytes_on_streams_of_its_own(consume):
    consume(
        """
cuda.mock_set(DELAY_US, 500)
streams = [new_stream(), new_stream()]
loader = Device(ds, 24, shuffle="global", columns=["row", "id", "words"])
for epoch in range(3):
    seen = []
    for number, batch in enumerate(loader):
        stream = streams[number % 2]
        words = batch["words"]
        tensors = [batch["row"], batch["id"], words.values, words.offsets]
        seen.append([read_later(tensor, stream) if hasattr(tensor, "__dlpack__") and not isinstance(tensor, np.ndarray) else tensor for tensor in tensors])
        del batch, words, tensors
    finish()
    ids = np.concatenate([rows[1] for rows in seen])
    assert sorted(ids.tolist()) == list(range(400))
    for row, ids, values, offsets in seen:
        assert (row == pixels(ids)).all()
        expected = [np.arange(i % 7, dtype=np.int32) + np.int32(i) for i in ids]
        assert (values.view(np.int32).ravel() == np.concatenate(expected)).all()
        assert len(offsets) == len(ids) + 1
columns = loader.stats()["device"]["columns"]
assert columns["row"]["route"] == "kernel" and columns["row"]["refused"] is None, columns
print("done")
"""
    )


def test_copies_to_memory_of_the_consumers_own_come_in_the_order_of_its_stream(consume):
    consume(
        """
from forebay import _forebay
cuda.mock_set(DELAY_US, 500)
stream, kept = new_stream(), []
for batch in Device(ds, 50, shuffle=True, columns=["row", "id"]):
    copies, addresses = [], []
    for name in ("row", "id"):
        target = ctypes.c_uint64()
        length = {"row": 50 * 3000, "id": 50 * 8}[name]
        assert cuda.cuMemAlloc_v2(ctypes.byref(target), ctypes.c_size_t(length)) == 0
        # In two parts, as batches of a group are.
        half = target.value + length // 5 * 2
        copies += [(batch[name], half, (20, 30)), (batch[name], target.value, (0, 20))]
        addresses.append(target.value)
    _forebay.copy_on_device(copies, stream)
    whole = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(whole), ctypes.c_size_t(400)) == 0
    _forebay.copy_on_device([(batch["id"], whole.value, None)], stream)
    kept.append((*addresses, whole.value))
    del batch, copies
finish()
ids = []
for row, number, whole in kept:
    assert ctypes.string_at(whole, 400) == ctypes.string_at(number, 400)
    number = np.frombuffer(ctypes.string_at(number, 400), np.int64)
    assert (np.frombuffer(ctypes.string_at(row, 150_000), np.uint8).reshape(50, 3000) == pixels(number)).all()
    ids += number.tolist()
assert sorted(ids) == list(range(400))
print("done")
"""
    )


def test_small_batches_come_to_the_device_together_and_are_handed_out_one_by_one(consume):
    consume(
        """
cuda.mock_set(DELAY_US, 300)
stream = new_stream()

class Grouped(Device):
    def _batch(self, columns):
        batch = {name: read_later(native, stream) for name, native in super()._batch(columns).items()}
        cuda.mock_finish()
        return batch

options = {"shuffle": "global", "columns": ["row", "id"], "seed": 5}
alone = list(Grouped(ds, 7, **options))
loader = Grouped(ds, 7, group_bytes=100_000, map_batches=lambda batch: {**batch, "rows": len(batch["id"])}, **options)
batches, states = [], []
for batch in loader:
    batches.append(batch)
    states.append(loader.state_dict())
assert len(batches) == len(alone) == len(loader) == 58
for batch, other in zip(batches, alone):
    assert (batch["id"] == other["id"]).all() and (batch["row"] == pixels(other["id"])).all()
    assert batch["rows"] == len(other["id"])
assert loader.stats()["batches"] == 58 and loader.stats()["device"]["batches"] < 40 + 58, loader.stats()
loader.load_state_dict(states[20])
assert [batch["id"].tolist() for batch in loader] == [batch["id"].tolist() for batch in alone[21:]]
finish()
print("done")
"""
    )


def test_a_stream_that_could_be_two_and_a_copy_are_refused(consume):
    consume(
        """
batch = next(iter(Device(ds, 8, columns=["row"])))
for options in ({"stream": 0}, {"stream": -5}, {"stream": 1, "copy": True}):
    try:
        batch["row"].__dlpack__(**options)
    except BufferError:
        continue
    raise AssertionError(options)
assert (read_later(batch["row"], 1), finish())[0].shape == (8, 3000)
print("done")
"""
    )


def test_a_fork_in_mid_epoch_is_an_error_in_the_child_and_nothing_in_the_parent(consume):
    consume(
        """
cuda.mock_set(DELAY_US, 200)
stream = new_stream()
batches = iter(Device(ds, 16, shuffle="global", columns=["row", "id"]))
first = next(batches)
child = os.fork()
if child == 0:
    said = []
    for work in (lambda: next(batches), lambda: next(iter(Device(ds, 16))), lambda: first["row"].__dlpack__(stream=stream)):
        try:
            work()
            said.append("nothing")
        except (fb.LoaderError, BufferError) as error:
            said.append("" if "fork" in str(error) else repr(error))
    if any(said):
        print(said, file=sys.stderr)
    sys.stderr.flush()
    os._exit(1 if any(said) else 42)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 42, status
seen = [(read_later(first["row"], stream), read_later(first["id"], stream))]
del first
seen += [(read_later(batch["row"], stream), read_later(batch["id"], stream)) for batch in batches]
finish()
assert all((row == pixels(ids)).all() for row, ids in seen)
assert sorted(np.concatenate([ids for _, ids in seen]).tolist()) == list(range(400))
print("done")
"""
    )


def test_a_file_that_was_cut_off_is_an_error_that_names_it(consume):
    consume(
        """
from pathlib import Path
for path in Path(sys.argv[1], "data").iterdir():
    os.truncate(path, 8192)
for build in (lambda: ds.numpy(400, columns=["row"]), lambda: Device(ds, 400, columns=["row"])):
    try:
        next(iter(build()))
    except fb.Error as error:
        assert "data/" in str(error), error
        continue
    raise AssertionError("a file that was cut off was read")
print("done")
"""
    )


def test_a_consumer_that_keeps_every_batch_is_told_and_what_it_kept_stays_right(consume):
    consume(
        """
fb.gpu.configure(device_memory=600_000)
stream, kept, said = new_stream(), [], None
try:
    for batch in Device(ds, 16, shuffle="global", columns=["row", "id"]):
        kept.append(batch)
except fb.LoaderError as error:
    said = str(error)
assert said and "budget" in said, said
assert 2 <= len(kept) < 25, len(kept)
seen = [(read_later(batch["row"], stream), read_later(batch["id"], stream)) for batch in kept]
finish()
assert all((row == pixels(ids)).all() for row, ids in seen)
print("done")
"""
    )
