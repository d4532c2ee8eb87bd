"""The base of every model that crosses a process border."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Contract(BaseModel):
    """camelCase on the wire, snake_case in Python; unknown fields are an error, values do not change."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class Message(BaseModel):
    """Like `Contract`, but tolerant: a newer sender may add fields, an older reader skips them."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", use_attribute_docstrings=True
    )
