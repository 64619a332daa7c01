"""Makes a site of documents that are written to be read where they are: on GitHub, in an editor.

- README.md and the other documents of the root directory become pages.
- A link to a document leads to its page, one to another file of the project to the repository.
- Fences carry words for the tests of the documents (```sh demo), which are left out.
- Lists are indented by four spaces, and begin after an empty line, as Python-Markdown wants them.
"""

import os
import posixpath
import re

from mkdocs.structure.files import File

# Documents of the root directory, and the pages that they become.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}

FENCE = re.compile(r"^( *)(```+)(\w*)")
ITEM = re.compile(r"^( *)([-*]|\d+\.) +")
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def root(config):
    return os.path.dirname(config.config_file_path)


def on_config(config):
    """Puts every decision in the place of adr/."""
    names = sorted(name for name in os.listdir(os.path.join(config.docs_dir, "adr")) if name.endswith(".md"))
    names.sort(key=lambda name: name != "README.md")
    for entry in config.nav:
        for title, where in entry.items():
            if where == "adr/":
                entry[title] = ["adr/" + name for name in names]
    return config


def on_files(files, config):
    for name, page in PAGES.items():
        with open(os.path.join(root(config), name), encoding="utf-8") as text:
            files.append(File.generated(config, page, content=text.read()))
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri
    sources = {to: name for name, to in PAGES.items()}
    source = sources.get(here, "docs/" + here)
    lines = []
    for line, fenced in indented(markdown.split("\n")):
        if not fenced:
            line = LINK.sub(lambda found: found[1] + target(found[2], source, here, config) + found[3], line)
        lines.append(line)
    return "\n".join(lines)


def target(link, source, here, config):
    """Gives what a link of a file of the project should be on its page. One that leads nowhere stays, and mkdocs reports it."""
    if "://" in link or link.startswith("mailto:"):
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    at = os.path.join(root(config), path)
    page = PAGES.get(path) or (path[len("docs/"):] if path.startswith("docs/") else None)
    if page and os.path.isfile(at):
        return posixpath.relpath(page, posixpath.dirname(here) or ".")
    if os.path.exists(at):
        return f"{config.repo_url}/{'tree' if os.path.isdir(at) else 'blob'}/main/{path}"
    return link


def indented(lines):
    """Yields each line with its lists as Python-Markdown wants them, and whether it belongs to a block of code."""
    offsets = []  # where the text of each open list item begins
    fence = None  # what closes the block of code
    apart = True  # whether there was an empty line since the list item, or the document, began
    before = ""
    for line in lines:
        if fence:
            if line.strip() == fence:
                fence = None
            yield shifted(line, offsets), True
        elif not line.strip():
            apart = True
            yield line, False
        else:
            depth = len(offsets)
            while offsets and len(line) - len(line.lstrip(" ")) < offsets[-1]:
                offsets.pop()
            out, item, block = shifted(line, offsets), ITEM.match(line), FENCE.match(line)
            if item and before.strip() and (apart or not depth):
                yield "", False
            if item:
                offsets.append(len(item[0]))
                apart = False
            if block:
                fence = block[2]
                out = out[: out.index(fence)] + fence + block[3]
            yield out, bool(block)
        before = line


def shifted(line, offsets):
    if not offsets or not line.strip():
        return line
    return "    " * len(offsets) + line[offsets[-1]:]
