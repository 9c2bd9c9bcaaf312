"""Find the answer in a response: the last box, the last block of code. Linear in the length of the text."""

import re
import textwrap


def last_boxed(text: str) -> str | None:
    r"""Contents of the last `\boxed{...}` (or `\boxed 5`), stripped; None without a box or when it is never closed.

    Braces nest; `\{` and `\}` are symbols and do not count. `\boxed{\boxed{5}}` gives the inner one.
    An unclosed last box is not replaced by an earlier one: the response was cut in its final answer.
    """
    # "\boxedfoo" would be another command.
    starts = [match.end() for match in re.finditer(r"\\boxed(?![A-Za-z])\s*", text)]
    if not starts:
        return None
    start = starts[-1]
    if not text.startswith("{", start):
        bare = re.match(r"[^\s$}]+", text[start:])
        return bare.group() if bare else None
    depth = 0
    for token in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0 and token.group() == "}":
            return text[start + 1 : start + token.start()].strip()
    return None


def last_code_block(text: str) -> str | None:
    """The last closed ```python block; without any, the last closed block that names no language; else None.

    A fence is a line that starts with three backticks. An opening fence inside an open block starts a new block:
    the earlier one was never closed. A block that is indented as a whole is dedented.
    """
    python = untagged = tag = None
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        fence = line.strip()
        if not fence.startswith("```") or "`" in fence[3:]:
            lines.append(line)
        elif tag is None or fence != "```":
            tag = (fence[3:].split() or [""])[0].lower()
            indented, lines = line[:1].isspace(), []
        else:
            code = "\n".join(lines)
            code = textwrap.dedent(code) if indented else code
            if tag in ("python", "python3", "py"):
                python = code
            elif tag == "":
                untagged = code
            tag = None
    return untagged if python is None else python
