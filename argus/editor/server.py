"""The language server: diagnostics while typing, quick fixes and hovers, over standard input and output."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any

from argus.compile import ExplicitKernel
from argus.diagnostic import Diagnostic
from argus.editor import analysis
from argus.editor.analysis import Range
from argus.editor.fixes import Fix, fixes
from argus.editor.hovers import hover
from argus.frontend.linking import linked
from argus.source import SourceFile

_PAUSE_S = 0.2
"""Pause in typing, in seconds, after which the kernels are analysed."""


def serve(target: str, version: str) -> None:
    """Serve an editor until it ends the session. Needs pygls, which the extra `lsp` installs."""
    make(target, version).start_io()


def make(target: str, version: str) -> Any:
    """Return a server for kernels of a target."""
    from lsprotocol import types as lsp
    from pygls.lsp.server import LanguageServer

    server = LanguageServer("argus", version)
    editor = _Editor(server, lsp, target)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(parameters: Any) -> None:
        await editor.look(parameters.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(parameters: Any) -> None:
        await editor.look(parameters.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(parameters: Any) -> None:
        empty = lsp.PublishDiagnosticsParams(uri=parameters.text_document.uri, diagnostics=[])
        server.text_document_publish_diagnostics(empty)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hovered(parameters: Any) -> Any:
        return await editor.hover(parameters.text_document.uri, parameters.position)

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
    )
    async def actions(parameters: Any) -> Any:
        return await editor.actions(parameters.text_document.uri, parameters.range)

    return server


class _Editor:
    """Answers an editor's requests about kernels of a target. `lsp` is the module of the protocol's types."""

    def __init__(self, server: Any, lsp: Any, target: str) -> None:
        self.server = server
        self.lsp = lsp
        self.target = target
        self._alone = asyncio.Lock()

    async def look(self, uri: str) -> None:
        """Publish the diagnostics of a text once typing pauses, unless the text has changed by then."""
        document = self.server.workspace.get_text_document(uri)
        version = document.version
        await asyncio.sleep(_PAUSE_S)
        async with self._alone:
            if self.server.workspace.get_text_document(uri).version != version:
                return  # A later change is analysed instead.
            found = await asyncio.to_thread(_findings, _source(document), self.target)
        if self.server.workspace.get_text_document(uri).version == version:
            diagnostics = [_diagnostic(self.lsp, finding) for finding in found]
            parameters = self.lsp.PublishDiagnosticsParams(uri=uri, version=version, diagnostics=diagnostics)
            self.server.text_document_publish_diagnostics(parameters)

    async def hover(self, uri: str, at: Any) -> Any:
        """Return the hover at a position, or None if there is nothing to show."""
        source = _source(self.server.workspace.get_text_document(uri))
        kernels = await asyncio.to_thread(_explicit, source, self.target)
        before = source.line(at.line + 1).encode("utf-16-le")[: 2 * at.character].decode("utf-16-le", "ignore")
        text = hover(source, kernels, at.line + 1, len(before) + 1)
        return self.lsp.Hover(self.lsp.MarkupContent(self.lsp.MarkupKind.Markdown, text)) if text else None

    async def actions(self, uri: str, wanted: Any) -> list[Any]:
        """Return the quick fixes of the findings in a range."""
        source = _source(self.server.workspace.get_text_document(uri))
        found = []
        for finding in await asyncio.to_thread(_findings, source, self.target):
            at = analysis.place(finding.span)
            if at is None or at.line > wanted.end.line or at.end_line < wanted.start.line:
                continue
            found += [self._action(uri, finding, fix) for fix in fixes(finding)]
        return found

    def _action(self, uri: str, finding: Diagnostic, fix: Fix) -> Any:
        """Return a fix as a code action."""
        lsp = self.lsp
        edit = lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(_range(lsp, fix.at), fix.text)]})
        kind, diagnostics = lsp.CodeActionKind.QuickFix, [_diagnostic(lsp, finding)]
        return lsp.CodeAction(fix.title, kind=kind, diagnostics=diagnostics, edit=edit)


def _source(document: Any) -> SourceFile:
    return linked(SourceFile(document.path, document.source))


@lru_cache(maxsize=16)
def _findings(source: SourceFile, target: str) -> tuple[Diagnostic, ...]:
    return analysis.findings(source, target)


@lru_cache(maxsize=16)
def _explicit(source: SourceFile, target: str) -> tuple[ExplicitKernel, ...]:
    return analysis.explicit_kernels(source, target)


def _range(lsp: Any, at: Range) -> Any:
    return lsp.Range(lsp.Position(at.line, at.character), lsp.Position(at.end_line, at.end_character))


def _diagnostic(lsp: Any, finding: Diagnostic) -> Any:
    from pygls import uris

    at = analysis.place(finding.span) or Range("", 0, 0, 0, 1)
    related = [
        lsp.DiagnosticRelatedInformation(lsp.Location(uris.from_fs_path(where.path) or "", _range(lsp, where)), text)
        for text, where in analysis.related(finding)
    ]
    return lsp.Diagnostic(
        range=_range(lsp, at),
        message=analysis.message(finding),
        severity=lsp.DiagnosticSeverity(analysis.severity(finding)),
        code=finding.code,
        source="argus",
        related_information=related or None,
    )
