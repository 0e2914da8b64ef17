"""The type stubs name what there is: no more, no less."""

import ast
import pathlib

import karstdb


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stubs_have_every_class_function_and_method():
    stubs = ast.parse((pathlib.Path(karstdb.__file__).parent / "__init__.pyi").read_text())
    classes = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stubs.body if isinstance(node, ast.FunctionDef)}
    assert public(classes) | public(functions) == set(karstdb.__all__)
    for name in public(classes):
        methods = (ast.FunctionDef, ast.AsyncFunctionDef)
        told = public(node.name for node in classes[name].body if isinstance(node, methods))
        there = public(key for key in vars(getattr(karstdb, name)))
        assert told == there, name


def test_everything_public_has_a_docstring():
    missing = [name for name in karstdb.__all__ if not getattr(karstdb, name).__doc__]
    for name in karstdb.__all__:
        kind = getattr(karstdb, name)
        if isinstance(kind, type):
            for method in public(vars(kind)):
                if not getattr(kind, method).__doc__:
                    missing.append(f"{name}.{method}")
    assert missing == []
