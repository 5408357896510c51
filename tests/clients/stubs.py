"""The modules of a gRPC definition, made with grpcio-tools."""

import importlib
import sys
import tempfile

from grpc_tools import protoc


def made(definition):
    """Returns the module of the messages, and that of the service."""
    folder = tempfile.mkdtemp()
    options = [f"-I{definition.parent}", f"--python_out={folder}", f"--grpc_python_out={folder}", definition.name]
    if protoc.main(["protoc", *options]):
        sys.exit("the definition is not valid")
    sys.path.insert(0, folder)
    name = definition.stem.replace("-", "_")
    return importlib.import_module(f"{name}_pb2"), importlib.import_module(f"{name}_pb2_grpc")
