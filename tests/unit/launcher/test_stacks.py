from colocated_runtime.launcher.stacks import NO_ANSWER, main_thread

MONITOR = 'Thread 0x00007fa5deffd6c0 (most recent call first):\n  File "tqdm/_monitor.py", line 69 in run\n\n'


def dump(depth: int) -> str:
    frames = "".join(f'  File "/a/long/way/to/some/package/module.py", line {n} in call_{n}\n' for n in range(depth))
    return f"{MONITOR}Current thread 0x00007fa6df01cb80 (most recent call first):\n{frames}"


def test_the_main_thread_innermost_call_last() -> None:
    lines = main_thread("the reward speaks\n" + dump(3) + "it speaks again\n", 1000).splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["call_2", "call_1", "call_0"]


def test_of_deep_stacks_the_innermost_calls_are_kept() -> None:
    """Where TRL calls vLLM they are deeper than what is kept."""
    lines = main_thread(dump(100), 1000).splitlines()
    assert lines[0] == "  ..."
    assert lines[-1].endswith("call_0")
    assert 10 < len(lines) < 20


def test_a_dump_that_is_cut_off() -> None:
    assert main_thread(dump(2)[:-5], 1000).splitlines()[-1].endswith("call_0")


def test_silence_is_told() -> None:
    assert main_thread("", 1000) == main_thread("the reward speaks\n", 1000) == NO_ANSWER
