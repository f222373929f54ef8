"""Rules for docstrings and comments: a verb or a noun first, short sentences, no words for people."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from inspect import cleandoc

import pytest

from .sources import SOURCE, Module, modules, modules_of_tests, offences

# A docstring begins with a verb (functions) or a noun (classes, modules).
RIDDLES = {"what", "who", "whose", "whom", "whether", "how", "when", "where", "which", "those", "it", "of", "as"}
# Words for people. Code publishes, sends, receives and logs.
OF_PEOPLE = re.compile(
    r"\b(anybody|everybody|nobody|somebody|tell|tells|telling|told|hear|hears|heard|says|said|saying)\b", re.IGNORECASE
)
MOST_WORDS = 30  # in a sentence
DRAWN = re.compile("├|^\\| ", re.MULTILINE)  # trees and tables
SENTENCES = re.compile(r"(?<=[.:;!?])\s+|\n\n|\n- ")
# At the beginning of a file, or behind the colon of a class or function.
DOCSTRING = re.compile(r'(?:\A|:(?: *#[^\n]*)?\n)\s*r?"""(.*?)"""', re.DOTALL)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(params=["src", "tests"])
def checked(request: pytest.FixtureRequest) -> Sequence[Module]:
    return modules() if request.param == "src" else modules_of_tests()


def docstrings(module: Module) -> Iterator[tuple[str, str]]:
    """Yield each docstring for engineers, with the name it belongs to, or its beginning in tests."""
    if SOURCE not in module.path.parents:
        # Parsing all tests would take seconds.
        yield from ((text[:40], cleandoc(text)) for text in DOCSTRING.findall(module.path.read_text()))
        return
    for node in (module.tree, *module.nodes):
        if not isinstance(node, Documented) or (text := ast.get_docstring(node)) is None:
            continue
        name = getattr(node, "name", module.name)
        is_help = module.part == "cli" and bool(getattr(node, "decorator_list", ()))
        if not is_help:
            yield name, text


def comments(module: Module) -> Iterator[str]:
    text = module.path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_docstrings_begin_with_a_verb_or_a_noun(checked: Sequence[Module]) -> None:
    def riddles(module: Module) -> set[str]:
        return {name for name, text in docstrings(module) if text.split()[0].lower().strip("`.,:") in RIDDLES}

    assert offences(riddles, checked) == {}


def test_words_for_people_are_not_used_of_code(checked: Sequence[Module]) -> None:
    def told(module: Module) -> set[str]:
        texts = [text for _, text in docstrings(module)]
        # Tokenizing takes long, and few files have such a word after a number sign.
        if any(OF_PEOPLE.search(line, line.index("#")) for line in module.lines if "#" in line):
            texts += comments(module)
        return {found for text in texts for found in OF_PEOPLE.findall(text)}

    assert offences(told, checked) == {}


def test_sentences_of_docstrings_are_short(checked: Sequence[Module]) -> None:
    def long(module: Module) -> set[str]:
        return {
            name
            for name, text in docstrings(module)
            for sentence in SENTENCES.split(text)
            if len(sentence.split()) > MOST_WORDS and not DRAWN.search(sentence)
        }

    assert offences(long, checked) == {}
