"""azure_container.py URL ACCOUNT KEY CONTAINER: makes a container of a storage account, by its shared key."""

import base64
import email.utils
import hashlib
import hmac
import sys
import urllib.error
import urllib.request

VERSION = "2023-11-03"


def main(url: str, account: str, key: str, container: str) -> int:
    date = email.utils.formatdate(usegmt=True)
    # The parts that are empty here: encoding, language, length, MD5, type, date, If-Modified-Since, If-Match, If-None-Match,
    # If-Unmodified-Since, range.
    headers = f"x-ms-date:{date}\nx-ms-version:{VERSION}\n"
    resource = f"/{account}/{account}/{container}\nrestype:container"
    text = "PUT\n" + "\n" * 11 + headers + resource
    signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
    request = urllib.request.Request(f"{url}/{account}/{container}?restype=container", method="PUT")
    request.add_header("x-ms-date", date)
    request.add_header("x-ms-version", VERSION)
    request.add_header("authorization", f"SharedKey {account}:{signature}")
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        print(f"making the container {container} was answered with {error.code}: {error.read().decode()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
