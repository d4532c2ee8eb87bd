"""Shows views of a job as they come: a live bar on a terminal, lines elsewhere."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from colocated_operator.cli.view import View, duration, news, speed


class Display:
    """A context: the bar goes when it ends."""

    def __init__(self, name: str, console: Console) -> None:
        self._console = console
        self._before: View | None = None
        self._bar = Progress(
            TextColumn("[bold]{task.fields[stage]}"),
            TextColumn("{task.fields[activity]}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[steps]}"),
            TextColumn("{task.fields[reward]}"),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[message]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(
            name, total=None, stage=name, activity="", steps="", reward="", speed="", left="", message=""
        )

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, view: View) -> None:
        """Tell what is new."""
        for event in news(self._before, view):
            self.say(event)
        if self._console.is_terminal:
            self._bar.update(
                self._task,
                total=view.total_steps or None,
                completed=view.step,
                stage=view.stage,
                activity=view.activity,
                steps=f"{view.step}/{view.total_steps}" if view.total_steps else "",
                reward=f"reward {view.reward:.3f}" if view.reward is not None else "",
                speed=speed(view.tokens_per_second) if view.tokens_per_second is not None else "",
                left=f"{duration(view.eta_seconds)} left" if view.eta_seconds is not None else "",
                message=view.message,
            )
        elif self._is_news(view):
            self.say(view.line())
        self._before = view

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _is_news(self, view: View) -> bool:
        """Without a bar: a line a step or stage, none for each phase of a step."""
        before = self._before
        if before is None:
            return True
        return (view.stage, view.step, view.message) != (before.stage, before.step, before.message)
