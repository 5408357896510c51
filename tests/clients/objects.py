#!/usr/bin/env python3
"""Runs moto, a server of S3, for the tests of a process. It ends when standard input is closed.

Prints one line of JSON with the endpoint, then answers each line of standard input with a line of JSON:

    bucket NAME        creates a bucket
    anonymous          accepts requests without a key, for which bucket policies count
    public NAME        lets everybody read the objects of a bucket
    user ACTIONS       creates a user that may do these actions (`s3:Get*,s3:List*`), with its key
    keys NAME          lists the objects of a bucket
    uploads NAME       counts the incomplete uploads of a bucket
    age NAME HOURS     lets all objects of a bucket look older
    stop, start        closes and opens the endpoint; the objects stay

Requests are checked against the permissions of their key before `anonymous`.
"""

import datetime
import json
import os
import sys

os.environ.update(
    AWS_ACCESS_KEY_ID="unchecked",
    AWS_SECRET_ACCESS_KEY="unchecked",
    AWS_DEFAULT_REGION="us-east-1",
    # The server checks nothing before it is asked to.
    INITIAL_NO_AUTH_ACTION_COUNT="1000000000",
)

import boto3
import requests
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    commands = Commands(endpoint)
    answer({"endpoint": endpoint})
    for line in sys.stdin:
        name, *arguments = line.split()
        if name == "stop":
            server.stop()
        elif name == "start":
            server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
            server.start()
        else:
            answer(getattr(commands, name)(*arguments))
            continue
        answer({})
    server.stop()


def answer(value):
    print(json.dumps(value), flush=True)


class Commands:
    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.users = 0
        self.root = None
        self.root = self.user("*")
        self.check_keys_after(0)

    def check_keys_after(self, count):
        """Requests have no checks of keys until this many were answered."""
        url = f"{self.endpoint}/moto-api/reset-auth"
        requests.post(url, data=str(count), timeout=10).raise_for_status()

    def anonymous(self):
        self.check_keys_after(1_000_000)
        return {}

    def client(self, service):
        key = self.root or {}
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=key.get("key", "unchecked"),
            aws_secret_access_key=key.get("secret", "unchecked"),
        )

    def user(self, actions):
        self.users += 1
        name = f"user{self.users}"
        iam = self.client("iam")
        iam.create_user(UserName=name)
        statement = {"Effect": "Allow", "Action": actions.split(","), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName=name, PolicyName="actions", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return {"key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}

    def bucket(self, name):
        self.client("s3").create_bucket(Bucket=name)
        return self.root

    def public(self, name):
        statement = {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{name}/*",
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.client("s3").put_bucket_policy(Bucket=name, Policy=policy)
        return {}

    def keys(self, name):
        pages = self.client("s3").get_paginator("list_objects_v2").paginate(Bucket=name)
        return [it["Key"] for page in pages for it in page.get("Contents", [])]

    def uploads(self, name):
        return len(self.client("s3").list_multipart_uploads(Bucket=name).get("Uploads", []))

    def age(self, name, hours):
        [backend] = [it["aws"] for it in s3_backends.values() if name in it["aws"].buckets]
        for key in backend.buckets[name].keys.values():
            key.last_modified -= datetime.timedelta(hours=float(hours))
        return {}


if __name__ == "__main__":
    main()
