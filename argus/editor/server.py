"""The language server: diagnostics while typing, quick fixes and hovers, over standard input and output."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any

from argus.compile import ExplicitKernel
from argus.diagnostic import Diagnostic
from argus.editor import analysis
from argus.editor.analysis import Range
from argus.editor.fixes import fixes
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
    alone = asyncio.Lock()

    async def look(uri: str) -> None:
        document = server.workspace.get_text_document(uri)
        version = document.version
        await asyncio.sleep(_PAUSE_S)
        async with alone:
            if server.workspace.get_text_document(uri).version != version:
                return  # A later change is analysed instead.
            found = await asyncio.to_thread(_findings, linked(SourceFile(document.path, document.source)), target)
        if server.workspace.get_text_document(uri).version == version:
            diagnostics = [_diagnostic(lsp, finding) for finding in found]
            parameters = lsp.PublishDiagnosticsParams(uri=uri, version=version, diagnostics=diagnostics)
            server.text_document_publish_diagnostics(parameters)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(parameters: Any) -> None:
        await look(parameters.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(parameters: Any) -> None:
        await look(parameters.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(parameters: Any) -> None:
        empty = lsp.PublishDiagnosticsParams(uri=parameters.text_document.uri, diagnostics=[])
        server.text_document_publish_diagnostics(empty)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hovered(parameters: Any) -> Any:
        document = server.workspace.get_text_document(parameters.text_document.uri)
        source, at = linked(SourceFile(document.path, document.source)), parameters.position
        kernels = await asyncio.to_thread(_explicit, source, target)
        before = source.line(at.line + 1).encode("utf-16-le")[: 2 * at.character].decode("utf-16-le", "ignore")
        text = hover(source, kernels, at.line + 1, len(before) + 1)
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text)) if text else None

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
    )
    async def actions(parameters: Any) -> Any:
        uri = parameters.text_document.uri
        document = server.workspace.get_text_document(uri)
        source, wanted = linked(SourceFile(document.path, document.source)), parameters.range
        found = []
        for finding in await asyncio.to_thread(_findings, source, target):
            at = analysis.place(finding.span)
            if at is None or at.line > wanted.end.line or at.end_line < wanted.start.line:
                continue
            for fix in fixes(finding):
                edit = lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(_range(lsp, fix.at), fix.text)]})
                found.append(
                    lsp.CodeAction(
                        fix.title, kind=lsp.CodeActionKind.QuickFix, diagnostics=[_diagnostic(lsp, finding)], edit=edit
                    )
                )
        return found

    return server


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
