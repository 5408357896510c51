"""Drives `pkgtool lsp` with pygls: a client whose types check every message against the protocol.

    python3 tests/clients/lsp.py PKGTOOL DIRECTORY

DIRECTORY holds a clean package, `xnnpack/config.json`. Prints `understood` if all went well.
"""

import asyncio
import sys
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient

CONFIG = "config.json"


class Client(LanguageClient):
    def __init__(self):
        super().__init__("pkgtool-test", "1")
        self.published = asyncio.Queue()
        self.registered = asyncio.Event()
        self.errors = []

    def report_server_error(self, error, source):
        self.errors.append((source, error))


async def main(binary, directory):
    await told(binary, directory)
    await asked(binary, directory)
    print("understood")


async def told(binary, directory):
    """A client that receives pushed findings."""
    client = Client()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _(params: types.PublishDiagnosticsParams):
        client.published.put_nowait(params)

    @client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def _(params: types.RegistrationParams):
        assert params.registrations[0].method == types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        client.registered.set()

    await client.start_io(binary, "lsp")
    initialized = await client.initialize_async(parameters(directory))
    capabilities = initialized.capabilities
    assert capabilities.position_encoding == types.PositionEncodingKind.Utf16, capabilities
    assert capabilities.text_document_sync.change == types.TextDocumentSyncKind.Incremental
    client.initialized(types.InitializedParams())
    await asyncio.wait_for(client.registered.wait(), 60)

    path = directory / "xnnpack" / CONFIG
    text = path.read_text()
    document = types.TextDocumentIdentifier(path.as_uri())
    opened = types.TextDocumentItem(path.as_uri(), "json", 1, text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(opened))
    assert await findings(client, 1) == []

    start = text.index("classification")
    place = position(text, start)
    end = types.Position(place.line, place.character + len("classification"))
    change = types.TextDocumentContentChangePartial(types.Range(place, end), "clasification")
    versioned = types.VersionedTextDocumentIdentifier(2, path.as_uri())
    client.text_document_did_change(types.DidChangeTextDocumentParams(versioned, [change]))
    [finding] = await findings(client, 2)
    assert finding.code == "PKG004" and finding.severity == types.DiagnosticSeverity.Error, finding
    assert finding.range.start.line == place.line, finding

    hover = await client.text_document_hover_async(types.HoverParams(document, place))
    assert "PKG004" in hover.contents.value, hover
    asked = types.CompletionParams(document, place)
    completion = await client.text_document_completion_async(asked)
    words = {item.label: item for item in completion.items}
    assert "classification" in words, words
    assert words["classification"].text_edit.new_text == '"classification"'
    symbols = await client.text_document_document_symbol_async(
        types.DocumentSymbolParams(document)
    )
    assert [symbol.name for symbol in symbols] == ["fp32"], symbols
    links = await client.text_document_document_link_async(types.DocumentLinkParams(document))
    assert links[0].target.endswith(".pte"), links
    whole = types.Range(types.Position(0, 0), types.Position(99, 0))
    context = types.CodeActionContext([finding])
    actions = await client.text_document_code_action_async(
        types.CodeActionParams(document, whole, context)
    )
    assert isinstance(actions, (list, tuple)), actions
    client.text_document_did_close(types.DidCloseTextDocumentParams(document))
    assert await findings(client, None) == []

    await ended(client)


async def asked(binary, directory):
    """A client that asks for findings."""
    client = Client()
    refreshed = asyncio.Event()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _(params: types.PublishDiagnosticsParams):
        client.published.put_nowait(params)

    @client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def _(params: types.RegistrationParams):
        client.registered.set()

    @client.feature(types.WORKSPACE_DIAGNOSTIC_REFRESH)
    def _(_):
        refreshed.set()

    await client.start_io(binary, "lsp")
    asking = parameters(directory)
    asking.capabilities.text_document.diagnostic = types.DiagnosticClientCapabilities()
    asking.capabilities.workspace.diagnostics = types.DiagnosticWorkspaceClientCapabilities(True)
    initialized = await client.initialize_async(asking)
    provider = initialized.capabilities.diagnostic_provider
    assert provider.inter_file_dependencies and not provider.workspace_diagnostics, provider
    client.initialized(types.InitializedParams())
    path = directory / "xnnpack" / CONFIG
    document = types.TextDocumentIdentifier(path.as_uri())
    opened = types.TextDocumentItem(path.as_uri(), "json", 1, path.read_text())
    client.text_document_did_open(types.DidOpenTextDocumentParams(opened))

    async def report(known=None):
        params = types.DocumentDiagnosticParams(document, provider.identifier, known)
        return await asyncio.wait_for(client.text_document_diagnostic_async(params), 60)

    clean = await report()
    assert isinstance(clean, types.RelatedFullDocumentDiagnosticReport), clean
    assert not clean.items, clean
    again = await report(clean.result_id)
    assert isinstance(again, types.RelatedUnchangedDocumentDiagnosticReport), again
    change = types.TextDocumentContentChangeWholeDocument("{")
    versioned = types.VersionedTextDocumentIdentifier(2, path.as_uri())
    client.text_document_did_change(types.DidChangeTextDocumentParams(versioned, [change]))
    broken = await report(clean.result_id)
    assert [finding.code for finding in broken.items] == ["PKG002"], broken
    event = types.FileEvent((path.parent / "other.pte").as_uri(), types.FileChangeType.Created)
    client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    await asyncio.wait_for(refreshed.wait(), 60)
    assert client.published.empty(), client.published
    await ended(client)


async def ended(client):
    await client.shutdown_async(None)
    client.exit(None)
    await asyncio.wait_for(client._server.wait(), 60)
    assert client._server.returncode == 0, client._server.returncode
    assert not client.errors, client.errors


def parameters(directory):
    completion = types.ClientCompletionItemOptions(snippet_support=False)
    return types.InitializeParams(
        capabilities=types.ClientCapabilities(
            workspace=types.WorkspaceClientCapabilities(
                did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(True)
            ),
            text_document=types.TextDocumentClientCapabilities(
                hover=types.HoverClientCapabilities(content_format=[types.MarkupKind.Markdown]),
                completion=types.CompletionClientCapabilities(completion_item=completion),
                code_action=types.CodeActionClientCapabilities(
                    code_action_literal_support=types.ClientCodeActionLiteralOptions(
                        types.ClientCodeActionKindOptions([types.CodeActionKind.QuickFix])
                    )
                ),
                document_symbol=types.DocumentSymbolClientCapabilities(
                    hierarchical_document_symbol_support=True
                ),
            ),
        ),
        workspace_folders=[types.WorkspaceFolder(directory.as_uri(), "packages")],
    )


async def findings(client, version):
    while True:
        published = await asyncio.wait_for(client.published.get(), 60)
        if published.version == version:
            return list(published.diagnostics)


def position(text, offset):
    before = text[:offset]
    return types.Position(before.count("\n"), offset - (before.rfind("\n") + 1))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]).resolve()))
