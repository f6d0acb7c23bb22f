"""gcs.py PORT (0: any free one): a small Google Cloud Storage for tests, in memory, that speaks the XML API.

Written from Google's public description of that API: objects with generations, `x-goog-if-generation-match`, `x-goog-copy-source`,
ranges, listings of version 2 with prefix, delimiter and pages, uploads in parts. `PUT /bucket` makes a bucket. Every change
of an object is made under one lock, so that conditions are exact.
"""

from __future__ import annotations

import email.utils
import hashlib
import http.server
import re
import sys
import threading
import time
import urllib.parse
import uuid
from typing import NamedTuple
from xml.sax.saxutils import escape

PAGE = 7  # Small, so that tests see several pages.


class Stored(NamedTuple):
    data: bytes
    generation: int
    modified: float

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


class Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


LOCK = threading.Lock()
BUCKETS: dict[str, dict[str, Stored]] = {}
UPLOADS: dict[str, dict[int, bytes]] = {}
GENERATION = 0


def bucket(name: str) -> dict[str, Stored]:
    if name not in BUCKETS:
        raise Refused(404, "NoSuchBucket")
    return BUCKETS[name]


def found(objects: dict[str, Stored], name: str) -> Stored:
    if name not in objects:
        raise Refused(404, "NoSuchKey")
    return objects[name]


def store(objects: dict[str, Stored], name: str, data: bytes, condition: str | None) -> Stored:
    """Stores an object if its generation is the one named (0: there is none). Called with the lock held."""
    global GENERATION
    now = objects[name].generation if name in objects else 0
    if condition is not None and int(condition) != now:
        raise Refused(412, "PreconditionFailed")
    GENERATION += 1
    objects[name] = Stored(data, GENERATION, time.time())
    return objects[name]


def listing(objects: dict[str, Stored], query: dict[str, str]) -> str:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = max(query.get("start-after", ""), query.get("continuation-token", ""))
    most = min(int(query.get("max-keys", PAGE)), PAGE)
    contents, prefixes, last, more = [], [], "", False
    for name in sorted(objects):
        if not name.startswith(prefix):
            continue
        end = name.find(delimiter, len(prefix)) if delimiter else -1
        shown = name[: end + len(delimiter)] if end >= 0 else name
        if shown <= after or (end >= 0 and shown in prefixes):
            continue
        if len(contents) + len(prefixes) == most:
            more = True
            break
        last = shown
        if end >= 0:
            prefixes.append(shown)
        else:
            contents.append(name)
    rows = [
        f"<Contents><Key>{escape(name)}</Key><Generation>{objects[name].generation}</Generation>"
        f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(objects[name].modified))}</LastModified>"
        f"<ETag>{escape(objects[name].etag)}</ETag><Size>{len(objects[name].data)}</Size></Contents>"
        for name in contents
    ]
    rows += [f"<CommonPrefixes><Prefix>{escape(shown)}</Prefix></CommonPrefixes>" for shown in prefixes]
    if more:
        rows.append(f"<NextContinuationToken>{escape(last)}</NextContinuationToken>")
    return f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{''.join(rows)}</ListBucketResult>"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def handle_any(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        name, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            with LOCK:
                self.do(name, key, query, body)
        except Refused as refused:
            text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{refused.code}</Code></Error>"
            self.answer(refused.status, text.encode())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - the names that http.server calls

    def do(self, name: str, key: str, query: dict[str, str], body: bytes) -> None:
        if self.command == "PUT" and not key:
            BUCKETS.setdefault(name, {})
            return self.answer(200)
        objects = bucket(name)
        if "uploads" in query or "uploadId" in query:
            return self.upload(objects, name, key, query, body)
        if self.command == "PUT":
            return self.put(objects, key, body)
        if self.command == "DELETE":
            found(objects, key)
            del objects[key]
            return self.answer(204)
        if not key:
            return self.answer(200, listing(objects, query).encode())
        return self.get(found(objects, key))

    def put(self, objects: dict[str, Stored], key: str, body: bytes) -> None:
        source = self.headers.get("x-goog-copy-source")
        if source is not None:
            other, _, name = urllib.parse.unquote(source).lstrip("/").partition("/")
            body = found(bucket(other), name).data
        made = store(objects, key, body, self.headers.get("x-goog-if-generation-match"))
        copied = f"<CopyObjectResult><ETag>{escape(made.etag)}</ETag></CopyObjectResult>" if source is not None else ""
        self.answer(200, copied.encode(), made)

    def get(self, held: Stored) -> None:
        data, extra = held.data, {}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("range") or "")
        if asked:
            first, last = asked.groups()
            start = int(first) if first else max(len(data) - int(last), 0)
            end = min(int(last) + 1, len(data)) if first and last else len(data)
            if start >= end:
                raise Refused(416, "InvalidRange")
            extra["content-range"] = f"bytes {start}-{end - 1}/{len(data)}"
            data = data[start:end]
        self.answer(206 if asked else 200, data, held, extra)

    def upload(self, objects: dict[str, Stored], name: str, key: str, query: dict[str, str], body: bytes) -> None:
        upload = query.get("uploadId")
        if upload is None:
            upload = uuid.uuid4().hex
            UPLOADS[upload] = {}
            text = f"<Bucket>{escape(name)}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            return self.answer(200, f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode())
        if upload not in UPLOADS:
            raise Refused(404, "NoSuchUpload")
        if self.command == "PUT":
            UPLOADS[upload][int(query["partNumber"])] = body
            return self.answer(200, b"", Stored(body, 0, time.time()))
        parts = UPLOADS.pop(upload)
        if self.command == "DELETE":
            return self.answer(204)
        wanted = [int(number) for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())]
        if any(number not in parts for number in wanted):
            raise Refused(400, "InvalidPart")
        data = b"".join(parts[number] for number in wanted)
        made = store(objects, key, data, self.headers.get("x-goog-if-generation-match"))
        text = f"<CompleteMultipartUploadResult><ETag>{escape(made.etag)}</ETag></CompleteMultipartUploadResult>"
        self.answer(200, text.encode(), made)

    def answer(
        self, status: int, body: bytes = b"", held: Stored | None = None, extra: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        if held is not None:
            self.send_header("etag", held.etag)
            self.send_header("last-modified", email.utils.formatdate(held.modified, usegmt=True))
            self.send_header("x-goog-generation", str(held.generation))
        for header, value in (extra or {}).items():
            self.send_header(header, value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
    print(f"listens on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
