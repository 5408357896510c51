"""Mixes rejected and valid requests on the reused connections of a Python HTTP client, and counts the answers.

mixed.py CLIENT URL KEY COUNT: CLIENT is requests, httpx or http.client. Every third request is valid. The
others are rejected before their body is read. Fails if an answer is missing or unexpected.
"""

import http.client
import sys
import urllib.parse

SMALL, LARGE = b"{}" + b" " * 2000, b"{}" + b" " * 400_000


def main(client, url, key, count):
    send = {"requests": with_requests, "httpx": with_httpx, "http.client": with_http_client}[client](url)
    for number in range(int(count)):
        # Few large ones: each costs its connection.
        body = LARGE if number % 100 == 7 else SMALL
        expected = (200, 401, 404)[number % 3]
        path = "/nowhere" if expected == 404 else "/p/local/echo"
        headers = {} if expected == 401 else {"MLP-API-KEY": key}
        status = send(path, headers, body)
        assert status == expected, f"request {number}: {status}, not {expected}"
    print(f"{count} answers")


def with_requests(url):
    import requests

    session = requests.Session()
    return lambda path, headers, body: session.post(url + path, data=body, headers=headers).status_code


def with_httpx(url):
    import httpx

    session = httpx.Client(timeout=60)
    return lambda path, headers, body: session.post(url + path, content=body, headers=headers).status_code


def with_http_client(url):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=60)

    def send(path, headers, body):
        connection.request("POST", path, body=body, headers=headers)
        response = connection.getresponse()
        response.read()
        return response.status

    return send


if __name__ == "__main__":
    main(*sys.argv[1:])
