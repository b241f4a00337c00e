"""Whether files can be read as they are, and what to change if not."""

from collections.abc import Mapping
from typing import Any

from qanat.capture.errors import BadLogUrl
from qanat.capture.files.avro import HEADER_LIMIT, parse_header
from qanat.capture.files.filesystem import FileSystem, Found
from qanat.capture.files.formats import Avro, format_of
from qanat.capture.files.options import FilesOptions, read_options
from qanat.capture.files.reader import FilesReader, files_of
from qanat.capture.url import Finding, LogUrl
from qanat.events.errors import QanatError

_LOOKED_AT_BYTES = 1 << 20


def check(url: LogUrl, options: Mapping[str, Any]) -> list[Finding]:
    given = read_options(url, options)
    files = files_of(url)
    try:
        return _findings(files, given)
    finally:
        files.close()


def _findings(files: FileSystem, given: FilesOptions) -> list[Finding]:
    try:
        found = files.find(given.pattern)
    except QanatError as error:
        return [
            Finding(
                False, f"the files cannot be listed: {error}", "start the file system, or correct the address"
            )
        ]
    if not found:
        return [
            Finding(False, f"no file matches {given.pattern}", "correct the pattern, or write a first file")
        ]
    total = sum(file.length for file in found)
    findings = [Finding(True, f"{len(found)} files match, {total} bytes in all")]
    newest = max((file for file in found if file.length), key=lambda file: file.changed_us, default=found[0])
    findings.append(_format(files, given, newest))
    try:
        FilesReader(files, given).oldest()
        findings.append(Finding(True, "the numbers of the files are written down"))
    except QanatError as error:
        fix = "let this user write there, or name another folder with the option register="
        findings.append(Finding(False, str(error), fix))
    return findings


def _format(files: FileSystem, given: FilesOptions, file: Found) -> Finding:
    """Decodes the beginning of one file."""
    fix = "name the format that the records have with the option format="
    try:
        form = format_of(given.format, file.path, given.record_limit, given.as_value)
        head = files.read(file.path, 0, max(_LOOKED_AT_BYTES, HEADER_LIMIT)) or b""
        header = parse_header(head) if isinstance(form, Avro) else None
        chunk = form.decode(head[header.size :] if header else head, header, 0, 100)
    except BadLogUrl as error:
        return Finding(False, str(error), fix)
    except QanatError as error:
        return Finding(False, f"{file.path} does not begin with records: {error}", fix)
    if chunk is None:
        return Finding(not file.length, f"{file.path} has no whole record yet", fix if file.length else "")
    names = ", ".join(column.name for column in chunk.columns)
    return Finding(True, f"{file.path} has records with the columns {names}")
