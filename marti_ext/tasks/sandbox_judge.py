"""The judge and the program, see sandbox.py: two processes that call each other's objects over pipes.

Runs inside the sandbox, so there are few imports here, and none of the package's own.
"""

import _pickle
import builtins
import io
import marshal
import operator
import os
import sys
import types
from contextlib import suppress

PLAIN = (bool, int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset, range, slice)
# All immutable types written in C: a pickle of these carries no code and changes no type.
SENT_AS_THEY_ARE = frozenset(
    [("builtins", kind.__name__) for kind in PLAIN]
    + [("datetime", name) for name in ("date", "time", "datetime", "timedelta", "timezone")]
    + [("decimal", "Decimal"), ("collections", "deque")]
)


def judge(libc, answer: int) -> None:
    """Start the program's process, read the work from standard input, say the verdict on `answer`; end the process.

    Raises OSError before the program runs, if at all.
    """
    silence = os.open("/dev/null", os.O_RDWR)
    peer = _Judge(*_start_program(libc, silence), answer)
    program, tests, names = marshal.load(sys.stdin.buffer)
    for target in range(3):
        os.dup2(silence, target)
    try:
        peer.ask("run", program)
        peer.test(tests, names)
    except BaseException as error:  # SystemExit as well
        verdict = "again" if isinstance(error, Unsendable) else "failed"
        peer.say(verdict, f"{type(error).__name__}: {error}".removesuffix(": "))
    peer.say("passed", "all tests passed")


def _start_program(libc, silence: int) -> tuple[int, int]:
    """The judge's ends of the pipes from and to the program."""
    from_judge, to_program = os.pipe()
    from_program, to_judge = os.pipe()
    if os.fork() == 0:
        try:
            libc.prctl(4, 1)  # PR_SET_DUMPABLE: it may read about itself
            with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
            for target, source in enumerate((silence, silence, silence, from_judge, to_judge)):
                os.dup2(source, target)
            os.closerange(5, 1 << 20)
            _Program(3, 4).serve()
        finally:
            os._exit(0)
    os.close(from_judge)
    os.close(to_judge)
    return from_program, to_program


class Unsendable(Exception):
    """A value of the tests that can't go to the program's process."""


class Handle:
    """In the judge: an object of the program's. It can be used, but not compared with or added to plain values."""

    def __init__(self, peer, number):
        vars(self).update(_peer=peer, _number=number)

    def __getattr__(self, name):
        if name[:2] == "__":
            raise AttributeError(name)
        return self._peer.ask("getattr", self, name)

    def __call__(self, *arguments, **named):
        answer, changed = self._peer.ask("call", self, arguments, named)
        for before, after in zip(arguments, changed, strict=True):
            if type(before) is type(after) and before != after:  # sorted in place, say
                if isinstance(before, list | bytearray):
                    before[:] = after
                elif isinstance(before, dict | set):
                    before.clear()
                    before.update(after)
        return answer

    def __iter__(self):
        return iter(self._peer.ask("list", self))

    def __len__(self):
        return self._peer.ask("len", self)

    def __getitem__(self, key):
        return self._peer.ask("getitem", self, key)

    def __eq__(self, other):
        return self is other or (type(other) is Handle and self._peer.ask("eq", self, other) is True)

    __hash__ = object.__hash__


class _Peer:
    """An end of the line between the judge and the program; `objects` are those of this end that the other refers to."""

    def __init__(self, incoming: int, outgoing: int):
        self.incoming, self.outgoing = os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb")
        self.objects: list = []
        peer = self

        class Sender(_pickle.Pickler):
            def persistent_id(self, value):
                return peer.refer(value)

            def reducer_override(self, original):
                value = original.item() if type(original).__module__ == "numpy" else original
                kind = next((kind for kind in PLAIN if isinstance(value, kind)), type(value))
                return NotImplemented if kind is type(original) else (kind, (kind(value),))

        class Receiver(_pickle.Unpickler):
            def persistent_load(self, reference):
                whose, number = reference
                return peer.objects[number] if whose == "yours" else Handle(peer, number)

            def find_class(self, module, name):
                if (module, name) not in SENT_AS_THEY_ARE:
                    raise ValueError(f"{module}.{name}")
                return getattr(__import__(module), name)

        self.sender, self.receiver = Sender, Receiver

    def refer(self, value):
        """None for what is sent as it is, else a reference."""
        if type(value) is Handle:
            return "yours", value._number
        kind = value if isinstance(value, type) else type(value)
        if value is None or value is ... or isinstance(value, PLAIN):
            return None
        if (kind.__module__, kind.__name__) in SENT_AS_THEY_ARE or (
            kind.__module__ == "numpy" and getattr(value, "shape", None) == ()
        ):
            return None
        self.export(value)
        return "mine", len(self.objects) - 1

    def export(self, value):
        self.objects.append(value)

    def send(self, *message):
        buffer = io.BytesIO()
        self.sender(buffer, 5).dump(message)
        self.outgoing.write(buffer.getbuffer())
        self.outgoing.flush()

    def receive(self):
        return self.receiver(self.incoming).load()

    def ask(self, *request):
        self.send("ask", *request)
        while (message := self.receive())[0] == "ask":
            self.answer(*message[1:])
        if message[0] == "answer":
            return message[1]
        _, names, arguments = message
        raise _exception(names, arguments)

    def answer(self, operation, *arguments):
        try:
            self.send("answer", getattr(self, f"on_{operation}")(*arguments))
        except BaseException as error:
            names = [kind.__name__ for kind in type(error).__mro__]
            self.send("raise", names, list(error.args))

    def on_call(self, function, arguments, named):
        return function(*arguments, **named), arguments


def _exception(names: list[str], arguments: list[str]) -> BaseException:
    """The nearest built-in relative of an exception at the other end."""
    for name in names:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            with suppress(TypeError):
                return kind(*arguments)
    return Exception(*arguments)


class _Judge(_Peer):
    def __init__(self, incoming: int, outgoing: int, verdict: int):
        super().__init__(incoming, outgoing)
        self.verdict = verdict

    def say(self, verdict: str, reason: str) -> None:
        os.write(self.verdict, f"{verdict}\n{reason}"[:1000].encode("utf-8", "replace"))
        os._exit(0)

    def receive(self):
        """Nothing that tests could catch: with a broken line they can't go on."""
        try:
            message = super().receive()
            if type(message) is tuple and message[:1] in (("ask",), ("answer",), ("raise",)):
                return message
            raise ValueError("not a message")
        except EOFError:
            self.say("failed", "ended before the end of the tests")
        except BaseException as error:
            self.say("failed", f"the program's answer can't be read: {type(error).__name__}")

    def export(self, value):
        if isinstance(value, type) or not callable(value):
            raise Unsendable(type(value).__name__)
        super().export(value.__call__)  # not the function: a pickle can change a function's defaults

    def answer(self, operation, *arguments):
        """The program may call the functions that it was given, and nothing else."""
        if operation != "call":
            self.say("failed", "the program asked for what it was not given")
        try:
            super().answer(operation, *arguments)
        except Unsendable as error:  # not for the program to cause another run
            self.say("failed", f"a function of the tests gave what can't be sent: {error}")

    def test(self, tests: str, names: dict | None) -> None:
        if names is None:
            self.ask("test", tests)
            challenge = os.urandom(16)  # so that an answer written before leaving is not enough
            if self.ask("echo", challenge) != challenge:
                raise ValueError("the program answered in place of the tests")
            return
        module = types.ModuleType("__main__")
        for name, attributes in names.items():
            if name in sys.stdlib_module_names and "" not in attributes:
                own = __import__(name)
                if all(hasattr(own, attribute) for attribute in attributes):
                    vars(module)[name] = own  # `math.isclose` is the judge's, not what the program calls math
                    continue
            with suppress(NameError):
                vars(module)[name] = self.ask("name", name)
        sys.modules["__main__"] = sys.modules["solution"] = module
        exec(compile(tests, "<tests>", "exec", dont_inherit=True), vars(module))


class _Program(_Peer):
    def serve(self) -> None:
        with suppress(EOFError):
            while True:
                _, *request = self.receive()
                self.answer(*request)

    def on_run(self, program):
        self.module = types.ModuleType("__main__")
        sys.modules["__main__"] = sys.modules["solution"] = self.module
        self.builtins = dict(vars(builtins))
        exec(compile(program, "<program>", "exec", dont_inherit=True), vars(self.module))

    def on_test(self, tests):
        vars(builtins).update(self.builtins)
        sys.settrace(None)
        exec(compile(tests, "<tests>", "exec", dont_inherit=True), vars(self.module))

    def on_name(self, name):
        if name not in vars(self.module):
            raise NameError(name)
        return vars(self.module)[name]

    def on_echo(self, challenge):
        return challenge

    on_getattr, on_list, on_len = staticmethod(getattr), staticmethod(list), staticmethod(len)
    on_getitem, on_eq = staticmethod(operator.getitem), staticmethod(operator.eq)
