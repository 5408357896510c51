"""A gate of the platform's protocol, written with grpcio: checks an instance of `pkgtool attach`.

    python gate.py DEFINITION TOKEN

Prints its port, waits for an instance of the example `hush_sentence`, sends it requests, lets it train, and fails at the
first answer that is wrong. Messages and service are made from the definition with grpcio-tools.
"""

import json
import queue
import sys
from concurrent import futures
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parent))
from stubs import made  # noqa: E402

PATIENCE = 60


class Connection:
    """An instance that announced itself."""

    def __init__(self, start, answers):
        self.start = start
        self.answers = answers
        self.to_service = queue.Queue()
        self.beats = 0

    def send(self, request_id=0, **body):
        self.to_service.put(messages.GateToServiceProto(requestId=request_id, **body))

    def answer(self):
        """The next message that is no heartbeat."""
        while True:
            message = self.answers.get(timeout=PATIENCE)
            if message.WhichOneof("body") != "heartBeat":
                return message
            self.beats += 1


def gate(connections):
    class Gate(services.GateServicer):
        def healthCheck(self, request, context):
            return messages.HeartBeatProto(status="Ok", interval=0)

        def processAsync(self, requests, context):
            answers = queue.Queue()
            connection = Connection(next(requests), answers)
            reader.submit(read, requests, connection)
            connections.put(connection)
            while True:
                message = connection.to_service.get()
                if message is None:
                    return
                yield message

    def read(requests, connection):
        try:
            for message in requests:
                connection.answers.put(message)
        except grpc.RpcError:
            pass
        connection.to_service.put(None)

    reader = futures.ThreadPoolExecutor(8)
    return Gate()


def payload(value):
    return messages.PayloadProto(json=value if isinstance(value, str) else json.dumps(value))


def expect(condition, what):
    if not condition:
        sys.exit(f"not as expected: {what}")


def check(connection, token):
    start = connection.start.startServing
    expect(start.connectionToken == token, f"the token {start.connectionToken}")
    expect(start.version == 2 and start.serviceDescriptor.name == "hush_sentence", start)
    expect("predict" in start.serviceDescriptor.methods and start.serviceDescriptor.fittable, start)
    connection.send(serviceInfo=messages.ServiceInfoProto(accountId=1, modelId=2, modelName="hush_sentence"))
    connection.send(heartBeat=messages.HeartBeatProto(status="Ok", interval=200))
    texts = {"texts": ["a dog", "night"]}
    first = None
    for round in range(3):
        connection.send(round, predict=messages.PredictRequestProto(data=payload(texts)))
        answer = connection.answer()
        expect(answer.requestId == round and answer.WhichOneof("body") == "predict", answer)
        expect("Z-Server-Time" in answer.headers, answer.headers)
        vectors = json.loads(answer.predict.data.json)["embedded_texts"]
        expect([len(one["vector"]) for one in vectors] == [32, 32], answer)
        first = first or vectors
        expect(vectors == first, "the same request has another answer")
        connection.send(7, predict=messages.PredictRequestProto(data=payload("{")))
        error = connection.answer().error
        expect((error.status, error.args["status"]) == (400, "400") and error.code and error.message, error)
    entries = [texts, {"texts": 1}, {"texts": []}]
    batch = [messages.BatchPayloadProto(requestId=at, data=payload(one)) for at, one in enumerate(entries, 20)]
    connection.send(8, batch=messages.BatchRequestProto(data=batch))
    kinds = [(one.requestId, one.WhichOneof("body")) for one in connection.answer().batch.data]
    expect(kinds == [(20, "predict"), (21, "error"), (22, "predict")], kinds)
    partial = messages.PartialPredictRequestProto(data=payload(texts), start=True, finish=True)
    connection.send(9, partialPredict=partial)
    part = connection.answer().partialPredict
    expect(part.start and part.finish and json.loads(part.data.json)["embedded_texts"] == first, part)
    check_training(connection)
    connection.send(11, status=messages.StatusRequestProto())
    expect(connection.answer().status.connectedToAllGates, "it is connected")
    while connection.beats < 2:
        beat = connection.answers.get(timeout=PATIENCE)
        expect(beat.heartBeat.status == "Ok", beat)
        connection.beats += 1
    connection.send(stopServing=messages.StopServingProto())
    expect(connection.answer().WhichOneof("body") == "stopServing", "it stops")


def check_training(connection):
    """The platform's types of texts and labels; a gate of the platform gets no instance of the result."""
    words = {"animals": ["cat", "dog", "a cat and a dog"], "colors": ["red", "blue", "red and green"]}
    rows = [(text, label) for label, texts in words.items() for text in texts]
    labels = [{"items": [{"value": label}]} for _, label in rows]

    def fit(number, directory, labels=labels, config="{}"):
        texts = payload({"texts": [text for text, _ in rows]})
        target = messages.ServiceInfoProto(accountId=1, modelId=9, modelName="Topics-1", authToken="none")
        connection.send(
            number,
            fit=messages.FitRequestProto(
                trainData=texts,
                targetsData=payload({"items_list": labels}),
                config=payload(config),
                modelDir=directory,
                targetServiceInfo=target,
            ),
        )
        while True:
            answer = connection.answer()
            expect(answer.requestId == number, answer)
            if answer.WhichOneof("body") != "fitStatus":
                return answer
            expect(0 < answer.fitStatus.percentage < 100, answer)

    for round in range(2):
        answer = fit(30 + round, "1/topics/7")
        expect(answer.WhichOneof("body") == "fit", answer)
    several = [{"items": [{"value": "words"}] + one["items"]} for one in labels]
    several[0]["items"].pop()
    answer = fit(33, "1/topics/8", labels=several[:1] + [{"items": []}] + several[2:])
    expect(answer.WhichOneof("body") == "fit", answer)
    for directory, labels, config, reason in [
        ("../topics", labels, "{}", "modelDir"),
        ("", labels, "{}", "modelDir"),
        ("a/.hidden", labels, "{}", "modelDir"),
        ("/".join("abcdefghi"), labels, "{}", "modelDir"),
        ("1", labels[1:], "{}", "5 texts"),
        ("1", labels[:3] * 2, "{}", "at least two labels"),
        ("1", [{"items": 1}] * 6, "{}", "items_list"),
        ("1", labels, '{"l3": 1}', "l3"),
        ("1", labels, "{", "JSON"),
    ]:
        error = fit(34, directory, labels, config).error
        expect(error.args["status"] == "400" and reason in error.message, error)
    connection.send(35, fit=messages.FitRequestProto(modelDir="1"))
    expect("no data" in connection.answer().error.message, "training without data is refused")


def main():
    connections = queue.Queue()
    server = grpc.server(futures.ThreadPoolExecutor(8))
    services.add_GateServicer_to_server(gate(connections), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    # The instance comes back after it was stopped.
    for _ in range(2):
        check(connections.get(timeout=PATIENCE), sys.argv[2])
    server.stop(None)


messages, services = made(Path(sys.argv[1]))
if __name__ == "__main__":
    main()
