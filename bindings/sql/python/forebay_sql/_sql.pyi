from typing import Any

import numpy as np

__version__: str

_Inputs = tuple[dict[str, Any], dict[str, Any], dict[str, str], int | None, int | None]

class Engine:
    def __init__(
        self,
        url: str,
        access: dict[str, Any],
        branch: str | None,
        tag: str | None,
        commit: str | None,
        memory: int | None,
        files: str | None,
        author: str,
    ) -> None: ...
    def execute(self, text: str, inputs: _Inputs) -> tuple[str, int, str | None, Answer | None]: ...
    def select(self, text: str, inputs: _Inputs) -> tuple[str, str, np.ndarray | None, list[str] | None, bool]: ...

class Answer:
    @property
    def columns(self) -> list[str]: ...
    def __arrow_c_schema__(self) -> Any: ...
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...

def create_lake(url: str, access: dict[str, Any]) -> None: ...
