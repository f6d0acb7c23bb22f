"""A reader of lakes written from docs/format.md alone: plain Python, no use of Forebay's code.

It reads lakes in local folders: every object is checked by length and checksum, every rule of deletes, overlays and defaults is followed.
What the standard library can't do (BLAKE3, Zstandard) it doesn't: pointers are checked by length and CRC, and zstd columns are refused.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

MAGIC = b"\x89FOREBAY"
ITEM = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
        "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "timestamp": 8}  # fmt: skip


class Damaged(Exception):
    """Bytes that are not what the format says."""


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Damaged(what)


def _table() -> list[int]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_CRC = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Table:
    """A flatbuffers table: fields by their number in the schema, counted from 0."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.vtable = at - struct.unpack_from("<i", data, at)[0]
        self.entries = struct.unpack_from("<H", data, self.vtable)[0] // 2 - 2

    @classmethod
    def root(cls, data: bytes) -> Table:
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _place(self, field: int) -> int:
        if field >= self.entries:
            return 0
        offset = struct.unpack_from("<H", self.data, self.vtable + 4 + 2 * field)[0]
        return self.at + offset if offset else 0

    def number(self, field: int, kind: str, default: Any = 0) -> Any:
        place = self._place(field)
        return struct.unpack_from("<" + kind, self.data, place)[0] if place else default

    def _follow(self, place: int) -> int:
        return place + struct.unpack_from("<I", self.data, place)[0]

    def has(self, field: int) -> bool:
        return self._place(field) != 0

    def table(self, field: int) -> Table:
        return Table(self.data, self._follow(self._place(field)))

    def vector(self, field: int, kind: str) -> list[Any]:
        place = self._place(field)
        if not place:
            return []
        at = self._follow(place)
        return list(struct.unpack_from(f"<{struct.unpack_from('<I', self.data, at)[0]}{kind}", self.data, at + 4))

    def bytes(self, field: int) -> bytes:
        place = self._place(field)
        if not place:
            return b""
        at = self._follow(place)
        return self.data[at + 4 : at + 4 + struct.unpack_from("<I", self.data, at)[0]]

    def text(self, field: int) -> str:
        return self.bytes(field).decode()

    def tables(self, field: int) -> list[Table]:
        place = self._place(field)
        if not place:
            return []
        at = self._follow(place)
        count = struct.unpack_from("<I", self.data, at)[0]
        return [Table(self.data, self._follow(at + 4 + 4 * n)) for n in range(count)]


def payload(data: bytes, kind: bytes) -> Table:
    """What is in the envelope of a metadata object."""
    need(len(data) >= 32 and data[:8] == MAGIC and data[8:12] == kind, f"not an object of kind {kind!r}")
    version, zero, features, length, crc = struct.unpack_from("<HHQII", data, 12)
    need(version == 1 and zero == 0 and features & ~15 == 0, "a version or feature that this reader doesn't know")
    need(length == len(data) - 32 and crc32c(data[:28] + data[32:]) == crc, "a wrong length or checksum")
    return Table.root(data[32:])


def leb128(data: bytes) -> list[int]:
    numbers, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    need(shift == 0, "a number that ends early")
    return numbers


def row_set(data: bytes) -> list[int]:
    numbers, end = leb128(data), 0
    rows: list[int] = []
    for gap, length in zip(numbers[::2], numbers[1::2]):
        rows.extend(range(end + gap, end + gap + length))
        end += gap + length
    return rows


def link(data: bytes) -> dict[str, Any]:
    """What a link says. Following it is not for this reader."""
    what, size = struct.unpack_from("<BQ", data)
    need(what & ~7 == 0, "a link with a bit that this reader doesn't know")
    at, found = 9, {"size": size, "range": (0, size), "hash": None, "etag": None}
    if what & 1:
        offset, length = struct.unpack_from("<QQ", data, at)
        found["range"], at = (offset, offset + length), at + 16
        need(offset + length <= size, "a range that isn't in the object")
    if what & 2:
        found["hash"], at = data[at : at + 32], at + 32
    if what & 4:
        end = at + 2 + struct.unpack_from("<H", data, at)[0]
        found["etag"], at = data[at + 2 : end].decode("ascii"), end
    need(what & 6 != 0 and len(data) > at, "a link without a check or without a URL")
    return {**found, "url": data[at:].decode()}


def lz4(data: bytes, length: int) -> bytes:
    """A raw LZ4 block."""
    out, at = bytearray(), 0

    def more(count: int) -> int:
        nonlocal at
        if count == 15:
            while True:
                count += data[at]
                at += 1
                if data[at - 1] != 255:
                    break
        return count

    while at < len(data):
        token = data[at]
        at += 1
        literals = more(token >> 4)
        out += data[at : at + literals]
        at += literals
        if at >= len(data):
            break
        offset = data[at] | data[at + 1] << 8
        at += 2
        for _ in range(more(token & 15) + 4):
            out.append(out[-offset])
    need(len(out) == length, "a block of another length")
    return bytes(out)


class Column:
    """A column in a data file: its rows as (bytes, shape), or None for null."""

    def __init__(self, data: bytes, column: Table, rows: int) -> None:
        self.dtype, self.shape = column.text(2), column.vector(3, "q")
        codec, shuffle, limit = column.text(5), column.number(7, "?", False), column.number(8, "I")
        need(self.dtype in ITEM or self.dtype in ("utf8", "json", "bytes", "link"), f"a dtype '{self.dtype}' that this reader doesn't know")
        need(codec in ("none", "lz4"), f"codec '{codec}' is not for this reader")
        item = ITEM.get(self.dtype, 1)
        fixed = self.dtype in ITEM and -1 not in self.shape
        self.rows: list[tuple[bytes, tuple[int, ...]] | None] = []
        for chunk in column.tables(9):
            count, offset = chunk.number(0, "I"), chunk.number(1, "Q")
            crcs, stored, begins, raws = (chunk.vector(n, "I") for n in (3, 4, 5, 6))
            need(offset % 4096 == 0, "a chunk that isn't aligned")
            if fixed:
                size = item
                for length in self.shape:
                    size *= length
                raws = self._fixed_blocks(count, size, limit)
            at, blocks = offset, []
            for n, raw in enumerate(raws):
                length = stored[n] if stored else raw
                block = data[at : at + length]
                need(crc32c(block) == crcs[n], f"block {n} has a wrong checksum")
                if length != raw:
                    block = lz4(block, raw)
                    if shuffle and item in (2, 4, 8):
                        block = self._unshuffle(block, item)
                blocks.append(block)
                at += length
            if fixed:
                whole = b"".join(blocks)
                found = [(whole[n * size : (n + 1) * size], ()) for n in range(count)]
            else:
                found = self._ragged(blocks, begins)
            need(len(found) == count, "rows that don't add up")
            valid = [True] * count
            for n, crc in enumerate(chunk.vector(7, "I")):
                some = min(524288, count - n * 524288)
                bits = data[at : at + (some + 7) // 8]
                need(crc32c(bits) == crc, "a bitmap has a wrong checksum")
                valid[n * 524288 : n * 524288 + some] = [bool(bits[i // 8] >> i % 8 & 1) for i in range(some)]
                at += len(bits)
            need(at == offset + chunk.number(2, "Q"), "a chunk of another length")
            self.rows += [row if there else None for row, there in zip(found, valid)]
        need(len(self.rows) == rows, "chunks that don't add up")

    @staticmethod
    def _fixed_blocks(count: int, size: int, limit: int) -> list[int]:
        if size == 0:
            return []
        if size > limit:
            return [min(limit, size - start) for _ in range(count) for start in range(0, size, limit)]
        each = limit // size
        return [min(each, count - start) * size for start in range(0, count, each)]

    @staticmethod
    def _unshuffle(block: bytes, item: int) -> bytes:
        elements = len(block) // item
        out = bytearray(block)
        for j in range(item):
            out[j : elements * item : item] = block[j * elements : (j + 1) * elements]
        return bytes(out)

    def _ragged(self, blocks: list[bytes], begins: list[int]) -> list[tuple[bytes, tuple[int, ...]]]:
        rank = len(self.shape)
        found: list[tuple[bytes, tuple[int, ...]]] = []
        for block, rows in zip(blocks, begins):
            if rows == 0:
                found[-1] = (found[-1][0] + block, found[-1][1])
                continue
            ends = struct.unpack_from(f"<{rows}I", block)
            lengths = struct.unpack_from(f"<{rows * rank}I", block, 4 * rows)
            values, start = block[4 * rows * (1 + rank) :], 0
            for n, end in enumerate(ends):
                found.append((values[start:end], lengths[n * rank : (n + 1) * rank]))
                start = end
        return found


class File(NamedTuple):
    """A data file as the manifest knows it."""

    name: bytes
    size: int
    index_offset: int
    index_length: int
    fields: list[int]

    @classmethod
    def of(cls, file: Table) -> File:
        return cls(file.bytes(0), file.number(1, "Q"), file.number(2, "Q"), file.number(3, "I"), file.vector(4, "Q"))


class Overlay(NamedTuple):
    file: File
    rows: list[int]
    first: int


class Fragment(NamedTuple):
    name: bytes
    rows: int
    files: list[File]
    deleted: set[int]
    overlays: list[Overlay]

    @classmethod
    def of(cls, name: bytes, rows: int, files: list[File], edits: Table, first: int) -> Fragment:
        """`edits` has deleted rows and overlays in its fields `first` and behind."""
        overlays = [Overlay(File.of(o.table(0)), row_set(o.bytes(1)), o.number(2, "I")) for o in edits.tables(first + 1)]
        return cls(name, rows, files, set(row_set(edits.bytes(first))), overlays)


def fragments(page: Table) -> list[Fragment]:
    """The fragments of a page, in order."""
    found = [
        Fragment.of(each.bytes(0), each.number(1, "I"), [File.of(file) for file in each.tables(2)], each, 3)
        for each in page.tables(0)
    ]
    for run in page.tables(1):
        names, fields = run.bytes(0), run.vector(3, "Q")
        files, numbers = run.bytes(1) if run.has(1) else names, leb128(run.bytes(2))
        need(len(names) == len(files) and 16 * len(numbers) == 3 * len(names), "a run that doesn't add up")
        for n, at in enumerate(range(0, len(names), 16)):
            rows, size, length = numbers[3 * n : 3 * n + 3]
            file = File(files[at : at + 16], size, size - 64 - length, length, fields)
            found.append(Fragment(names[at : at + 16], rows, [file], set(), []))
    for extra in page.tables(2):
        plain = found[extra.number(0, "I")]
        files_ = plain.files + [File.of(file) for file in extra.tables(1)]
        found[extra.number(0, "I")] = Fragment.of(plain.name, plain.rows, files_, extra, 2)
    return found


class Lake:
    """A lake in a local folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        marker = payload(self._read("forebay"), b"LAKE")
        self.hidden: dict[bytes, set[int]] = {}
        self.replaced: dict[bytes, File] = {}
        for path in (self.folder / "purges").iterdir() if marker.number(2, "B") else ():
            purge = payload(path.read_bytes(), b"PURG")
            for rows in purge.tables(6):
                self.hidden.setdefault(rows.bytes(0), set()).update(row_set(rows.bytes(1)))
            self.replaced.update({file.bytes(0): File.of(file.table(1)) for file in purge.tables(7)})
        self.files: dict[bytes, dict[int, Column]] = {}

    def _read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def _object(self, pointer: Table, kind: bytes) -> Table:
        data = self._read(f"meta/{pointer.bytes(0).hex()}")
        need(len(data) == pointer.number(1, "I"), "an object of another length than its pointer says")
        return payload(data, kind)

    def branches(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "refs/heads").iterdir() if self._entry(path.name).text(0) != "delete")

    def _entry(self, branch: str) -> Table:
        sequence = 0
        while (self.folder / f"refs/heads/{branch}/{sequence + 1:020}").exists():
            sequence += 1
        return payload(self._read(f"refs/heads/{branch}/{sequence:020}"), b"REFE")

    def branch(self, name: str) -> Table:
        entry = self._entry(name)
        need(entry.text(0) in ("create", "commit", "noop", "reset", "fence"), f"no branch '{name}'")
        return payload(entry.bytes(3), b"CMIT")

    def tag(self, name: str) -> Table:
        need(not (self.folder / f"refs/deleted-tags/{name}").exists(), f"no tag '{name}'")
        return payload(payload(self._read(f"refs/tags/{name}"), b"TAGG").bytes(1), b"CMIT")

    def commit(self, name: str) -> Table:
        return payload(self._read(f"meta/{name}"), b"CMIT")

    def tables(self, commit: Table) -> dict[str, Table]:
        return {table.text(0): table for table in commit.tables(6)}

    def read(self, commit: Table, name: str) -> dict[str, list[Any]]:
        """The rows of a table by column, as (bytes, shape), or None for null."""
        entry = self.tables(commit)[name]
        root = entry.table(3) if entry.has(3) else self._object(entry.table(4), b"ROOT")
        columns = [(column.text(0), column.number(1, "Q")) for column in root.tables(0)]
        found: dict[str, list[Any]] = {column: [] for column, _ in columns}
        defaults = [File.of(file) for file in root.tables(3)]
        total = 0
        for reference, page in zip(root.tables(1), self.pages(root)):
            rows = 0
            for fragment in page:
                live = [row for row in range(fragment.rows) if row not in fragment.deleted]
                rows += len(live)
                live = [row for row in live if row not in self.hidden.get(fragment.name, ())]
                for column, field in columns:
                    found[column] += self._cells(fragment, field, live, defaults)
            need((len(page), rows) == (reference.number(0, "I"), reference.number(1, "Q")), "a page that doesn't add up")
            total += rows
        need(total == entry.number(2, "Q"), "a table that doesn't add up")
        return found

    def pages(self, root: Table) -> list[list[Fragment]]:
        """The fragments of a table, by page."""
        inline = lambda page: page.table(3) if page.has(3) else self._object(page.table(4), b"PAGE")
        return [fragments(inline(page)) for page in root.tables(1)]

    def bases(self, commit: Table, name: str) -> dict[str, str | None]:
        """Where links lie whose URLs are names, by column."""
        entry = self.tables(commit)[name]
        root = entry.table(3) if entry.has(3) else self._object(entry.table(4), b"ROOT")
        links = [column for column in root.tables(0) if column.text(2) == "link"]
        metadata = {column.text(0): {one.text(0): one.text(1) for one in column.tables(9)} for column in links}
        return {column: texts.get("base") for column, texts in metadata.items()}

    def _cells(self, fragment: Fragment, field: int, live: list[int], defaults: list[File]) -> list[Any]:
        base = next((self._file(file)[field] for file in fragment.files if field in file.fields), None)
        if base is None:
            value = next(self._file(file)[field].rows[0] for file in defaults if field in file.fields)
            cells = dict.fromkeys(live, value)
        else:
            need(len(base.rows) == fragment.rows, "a file with other rows than its fragment")
            cells = {row: base.rows[row] for row in live}
        for file, rows, first in fragment.overlays:
            if field in file.fields:
                for k, row in enumerate(rows):
                    if row in cells:
                        cells[row] = self._file(file)[field].rows[first + k]
        return [cells[row] for row in live]

    def _file(self, file: File) -> dict[int, Column]:
        """The columns of a data file."""
        while file.name in self.replaced:
            file = self.replaced[file.name]
        name, offset, length = file.name, file.index_offset, file.index_length
        if name not in self.files:
            data = self._read(f"data/{name.hex()}")
            need(len(data) == file.size == offset + length + 64, "a file of another size")
            head, footer, index = data[:4096], data[-64:], data[offset : offset + length]
            need(head[:12] == MAGIC + b"DATA" and head[24:40] == name, "a file with another head")
            need(crc32c(head[:4092]) == struct.unpack_from("<I", head, 4092)[0], "a head with a wrong checksum")
            start, size, crc, same, features, rows = struct.unpack_from("<QII16sQI", footer)
            need((start, size, same, features) == (offset, length, name, 0) and footer[56:] == MAGIC, "a footer of another file")
            need(crc32c(footer[:52]) == struct.unpack_from("<I", footer, 52)[0], "a footer with a wrong checksum")
            need(crc32c(index) == crc, "an index with a wrong checksum")
            root = Table.root(index)
            self.files[name] = {column.number(0, "Q"): Column(data, column, rows) for column in root.tables(2)}
        return self.files[name]
