#!/usr/bin/env python3
"""Checks a webhook with the official `openai` client: reads its secret, body and headers as JSON from
standard input, and prints `valid` or `invalid`.
"""

import json
import sys

import openai


def main():
    given = json.load(sys.stdin)
    client = openai.OpenAI(api_key="none")
    try:
        event = client.webhooks.unwrap(given["body"], given["headers"], secret=given["secret"])
    except openai.InvalidWebhookSignatureError:
        print("invalid")
        return
    assert event.id == given["headers"]["webhook-id"], event
    print("valid")


if __name__ == "__main__":
    main()
