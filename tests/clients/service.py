"""A service of the platform's protocol, written with grpcio: attaches to the gate of `pkgtool serve --gate`.

    python service.py DEFINITION TOKEN HOST:PORT

Like the platform's SDKs it knows no additions of pkgtool. It answers a request by its data:

    "fail"      an error with a code, a status and arguments
    "twice"     two answers
    "wrong"     an answer to another request first
    "nothing"   an answer without data
    "leave"     no answer: the process ends
    "learned"   what it was trained with
    others      the data and the config, as they came

It trains itself: the texts, their labels, the config and the folders become its state. A text "break" is an error.

Answers in parts are refused, as by an SDK that does not know them. Ends when the gate asks it to stop.
"""

import json
import os
import queue
import sys
import threading
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parent))
from stubs import made  # noqa: E402


def main():
    definition, token, address = sys.argv[1:]
    messages, services = made(Path(definition))
    to_gate = queue.Queue()

    def send(request_id=0, **body):
        to_gate.put(messages.ServiceToGateProto(requestId=request_id, **body))

    def beat(stop, interval):
        while not stop.wait(interval / 1000):
            send(heartBeat=messages.HeartBeatProto())

    def answered(value):
        return messages.PredictResponseProto(data=messages.PayloadProto(json=json.dumps(value)))

    def predict(request):
        number, data = request.requestId, request.predict.data.json
        if data == '"fail"':
            args = {"dog": "none"}
            send(number, error=messages.ApiErrorProto(code="NO_DOG", message="no dog", status=404, args=args))
        elif data == '"leave"':
            os._exit(0)
        elif data == '"learned"':
            send(number, predict=answered(learned))
        elif data == '"nothing"':
            send(number, predict=messages.PredictResponseProto())
        else:
            if data == '"wrong"':
                send(number + 1000, predict=answered("not yours"))
            answer = {"data": json.loads(data), "config": request.predict.config.json}
            for _ in range(2 if data == '"twice"' else 1):
                send(number, predict=answered(answer))

    learned = []

    def fit(request):
        number, asked = request.requestId, request.fit
        texts, targets = json.loads(asked.trainData.json)["texts"], json.loads(asked.targetsData.json)["items_list"]
        for done in (0, 50, 100):
            send(number, fitStatus=messages.FitStatusProto(percentage=done))
        if "break" in texts:
            send(number, error=messages.ApiErrorProto(code="NO_LUCK", message="no luck", status=400, args={"message": texts[0]}))
            return
        if "leave" in texts:
            os._exit(0)
        learned.append(
            {
                "texts": texts,
                "labels": [[item["value"] for item in items["items"]] for items in targets],
                "config": json.loads(asked.config.json),
                "dirs": [asked.modelDir, asked.previousModelDir],
                "target": asked.targetServiceInfo.modelName,
                "token": asked.targetServiceInfo.authToken,
                "dataset": [asked.datasetInfo.name, asked.datasetInfo.type],
            }
        )
        send(number, fit=messages.FitResponseProto())

    def described(*names):
        of = messages.ParamDescriptorProto(type="Any")
        return messages.MethodDescriptorProto(input={name: of for name in names}, output=of)

    descriptor = messages.ServiceDescriptorProto(
        name="echo",
        fittable=True,
        methods={"predict": described("data", "config"), "fit": described("train_data", "targets", "config")},
    )
    stub = services.GateStub(grpc.insecure_channel(address))
    assert stub.healthCheck(messages.HeartBeatProto()).status == "Ok"
    start = messages.StartServingProto(connectionToken=token, serviceDescriptor=descriptor, hostname="", version=2)
    send(startServing=start)
    stop = threading.Event()
    for message in stub.processAsync(iter(to_gate.get, None)):
        kind = message.WhichOneof("body")
        if kind == "serviceInfo":
            print(message.serviceInfo.modelName, flush=True)
        elif kind == "heartBeat" and threading.active_count() == 2:
            threading.Thread(target=beat, args=(stop, message.heartBeat.interval), daemon=True).start()
        elif kind == "predict":
            predict(message)
        elif kind == "fit":
            fit(message)
        elif kind == "error" and message.requestId == 0:
            sys.exit(message.error.code)
        elif kind == "stopServing":
            send(stopServing=messages.StopServingProto())
            break
        elif kind != "heartBeat":
            error = messages.ApiErrorProto(code="UNKNOWN", message=f"unknown request {kind}", status=500)
            send(message.requestId, error=error)
    stop.set()
    to_gate.put(None)


if __name__ == "__main__":
    main()
