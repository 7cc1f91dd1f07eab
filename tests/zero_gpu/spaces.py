"""Stands in for the package `spaces` on ZeroGPU hardware: a process for every call, but no GPU.

What it does as the package does it (version 0.51): a generator function runs in a thread of a
forked process, arguments and values are pickled, and a closed outer generator closes the inner
one after its next value. A function that is no generator function is not taken.
"""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import wraps

import gradio as gr

calls = []
"""For every process that was forked an event: it has ended, and the caller knows."""
quota = []
"""What to refuse the next call with."""


def GPU(task):  # noqa: N802  the package's name
    assert inspect.isgeneratorfunction(task)

    @wraps(task)
    def handler(*args):
        if quota:
            raise gr.Error(quota.pop(), print_exception=False)
        context = multiprocessing.get_context("fork")
        near, theirs = context.Pipe()
        stop = context.Event()
        process = context.Process(target=_child, args=(task, theirs, stop), daemon=True)
        process.start()
        theirs.close()
        over = threading.Event()
        calls.append(over)
        near.send_bytes(pickle.dumps(args))
        try:
            while True:
                kind, value = pickle.loads(near.recv_bytes())
                if kind == "end":
                    return
                if kind == "failed":
                    raise gr.Error(value, print_exception=False)
                try:
                    yield value
                except GeneratorExit:
                    stop.set()
                    while pickle.loads(near.recv_bytes())[0] == "value":
                        pass  # on its way: unread, it could fill the pipe and hold the process
                    raise
        finally:
            process.join()
            over.set()

    return handler


def _child(task, pipe, stop):
    def iterate():
        stream = task(*pickle.loads(pipe.recv_bytes()))
        try:
            for value in stream:
                if stop.is_set():
                    stream.close()
                    break
                pipe.send_bytes(pickle.dumps(("value", value)))
        except Exception as error:
            pipe.send_bytes(pickle.dumps(("failed", type(error).__name__)))
        pipe.send_bytes(pickle.dumps(("end", None)))

    with ThreadPoolExecutor() as executor:
        executor.submit(iterate).result()
