"""Answers GraphQL by walking the query: whatever fields it asks for, under whatever alias, of the objects there are."""

from __future__ import annotations

from typing import Any

from graphql import Undefined, parse
from graphql.language import ast
from graphql.utilities import value_from_ast_untyped


class Refused(Exception):
    """An answer with an error: an HTTP status and a message."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


class Node:
    """An object of the graph: plain values and functions of the arguments, by field name."""

    def __init__(self, typename: str, **fields: Any) -> None:
        self.fields = {"__typename": typename, **fields}

    def resolve(self, name: str, arguments: dict[str, Any]) -> Any:
        if name not in self.fields:
            raise Refused(400, f"Cannot query field '{name}' on type '{self.fields['__typename']}'.")
        value = self.fields[name]
        return value(**arguments) if callable(value) else value


def connection(nodes: list[Node], first: int | None = None, after: str | None = None, **more: Any) -> Node:
    """A page of a list, as GraphQL's clients ask for it: the cursor is the number of nodes before."""
    start = int(after or 0)
    end = len(nodes) if first is None else min(start + first, len(nodes))
    edges = [
        Node("Edge", node=node, cursor=str(number)) for number, node in enumerate(nodes[start:end], start=start + 1)
    ]
    page = Node("PageInfo", endCursor=str(end) if edges else None, hasNextPage=end < len(nodes))
    return Node("Connection", edges=edges, pageInfo=page, totalCount=len(nodes), **more)


class Query:
    """One document with its variables."""

    def __init__(self, document: str, variables: dict[str, Any] | None, operation_name: str = "") -> None:
        definitions = parse(document).definitions
        operations = [one for one in definitions if isinstance(one, ast.OperationDefinitionNode)]
        # Core sends an empty name with a document of one operation.
        named = [one for one in operations if one.name and one.name.value == operation_name]
        self.operation = (named or operations)[0]
        self.name = self.operation.name.value if self.operation.name else ""
        self.is_mutation = self.operation.operation is ast.OperationType.MUTATION
        self._fragments = {one.name.value: one for one in definitions if isinstance(one, ast.FragmentDefinitionNode)}
        self._variables = dict(variables or {})
        for definition in self.operation.variable_definitions or ():
            name = definition.variable.name.value
            if definition.default_value is not None and name not in self._variables:
                self._variables[name] = value_from_ast_untyped(definition.default_value)

    def answer(self, root: Node) -> dict[str, Any]:
        return self._walk(self.operation.selection_set, root)

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The fields at the top with the arguments that were given a value: what a mutation asks for."""
        fields = [one for one in self.operation.selection_set.selections if isinstance(one, ast.FieldNode)]
        return [(one.name.value, self._arguments(one)) for one in fields]

    def _walk(self, selections: ast.SelectionSetNode, node: Node) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for selection in selections.selections:
            if not self._included(selection):
                continue
            if isinstance(selection, ast.FieldNode):
                key = (selection.alias or selection.name).value
                value = node.resolve(selection.name.value, self._arguments(selection))
                answer[key] = self._completed(selection.selection_set, value)
            elif isinstance(selection, ast.FragmentSpreadNode):
                answer |= self._walk(self._fragments[selection.name.value].selection_set, node)
            elif isinstance(selection, ast.InlineFragmentNode):
                condition = selection.type_condition
                if condition is None or condition.name.value == node.fields["__typename"]:
                    answer |= self._walk(selection.selection_set, node)
        return answer

    def _completed(self, selections: ast.SelectionSetNode | None, value: Any) -> Any:
        if isinstance(value, list):
            return [self._completed(selections, one) for one in value]
        return self._walk(selections, value) if isinstance(value, Node) and selections else value

    def _included(self, selection: ast.SelectionNode) -> bool:
        for directive in selection.directives or ():
            wanted = self._value(directive.arguments[0].value)
            if (directive.name.value, bool(wanted)) in (("include", False), ("skip", True)):
                return False
        return True

    def _arguments(self, field: ast.FieldNode) -> dict[str, Any]:
        """The arguments that have a value; of an object its fields that have one."""
        found = {one.name.value: self._value(one.value) for one in field.arguments or ()}
        return {name: value for name, value in found.items() if value is not None}

    def _value(self, node: ast.ValueNode) -> Any:
        value = value_from_ast_untyped(node, self._variables)
        if not isinstance(value, dict):
            return value
        return {key: one for key, one in value.items() if one is not None and one is not Undefined}
