#!/usr/bin/env python3
"""Writes testdata/jinja/golden.json: what Jinja2 makes of templates and snippets.

Run with a Python that has jinja2 (written with 3.1.2):  python3 tools/make_jinja_golden.py
The environment is set up as Hugging Face transformers sets it up for chat templates: sandboxed and
immutable, trim_blocks, lstrip_blocks, loop controls, its own tojson.
"""
import json
import pathlib

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja_snippets import SNIPPETS

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "jinja"


class Generation(Extension):
    """{% generation %} marks text for training; it is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_keep"), [], [], body).set_lineno(line)

    def _keep(self, caller):
        return caller()


class Refusal(Exception):
    pass


def raise_exception(message):
    raise Refusal(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


TOOLS = [{"type": "function",
          "function": {"name": "weather", "description": "The weather of a town <now> & \"here\".",
                       "parameters": {"type": "object",
                                      "properties": {"town": {"type": "string"},
                                                     "days": {"type": "integer", "default": 1.5}},
                                      "required": ["town"]}}},
         {"type": "function", "function": {"name": "clock", "parameters": {}}}]


def call(name, **arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hello, wörld!"}],
    "system": [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": " Hi\n"}],
    "turns": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"},
              {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"},
              {"role": "user", "content": "c\nd"}, {"role": "assistant", "content": "e"},
              {"role": "user", "content": "你好 🙂"}],
    "reasoning": [{"role": "user", "content": "a"},
                  {"role": "assistant", "reasoning_content": "why\n", "content": "b"}],
    "tools": [{"role": "user", "content": "Weather?"},
              {"role": "assistant", "content": "",
               "tool_calls": [call("weather", town="Łódź", days=2, deep={"a": [1, None, True]},
                                   flag=False, x=1.5)]},
              {"role": "tool", "content": "sunny"}, {"role": "assistant", "content": "Sunny."},
              {"role": "user", "content": "Thanks"}],
    "two_calls": [{"role": "user", "content": "Go"},
                  {"role": "assistant", "content": "Sure.",
                   "tool_calls": [call("weather", town="A"), call("clock")]},
                  {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}],
    "parts": [{"role": "system", "content": [{"type": "text", "text": "P"}]},
              {"role": "user", "content": [{"type": "text", "text": " x "}, {"type": "image"},
                                           {"type": "text", "text": "y"}]}],
    "late_system": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                    {"role": "system", "content": "late"}, {"role": "user", "content": "c"}],
    "bad_turns": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "empty": [{"role": "user", "content": ""}],
    "odd_role": [{"role": "critic", "content": "x"}],
}

OPTIONS = [{}, {"add_generation_prompt": False}, {"tools": TOOLS}, {"enable_thinking": False},
           {"reasoning_effort": "low"}, {"reasoning_effort": "medium", "tools": TOOLS},
           {"reasoning_effort": "none"}, {"preserve_thinking": True},
           {"tools": TOOLS, "tools_in_user_message": False}, {"date_string": "02 Mar 2026"},
           {"tools": []}, {"custom_tools": TOOLS}]

TEMPLATES = ["agent", "community", "headers", "qwen3", "smollm2", "turns"]

VARIABLES = {
    "s": "  Hello, World!\n", "u": "naïve Straße 你好🙂", "e": "", "n": 7, "neg": -3, "f": 2.5,
    "big": 1e20, "t": True, "fa": False, "no": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "ld": [{"k": 2, "v": "x"}, {"k": 1, "v": "Y"}, {"k": 2, "v": "z"}],
    "d": {"b": 1, "a": {"x": [1, 2, {"y": None}]}, "items": "it"}, "el": [], "ed": {},
    "j": {"q": "a\"b\\c\n\t\u0001<>&'é🙂", "n": [0.1, 1e100, -0.0, 100000000000000000.0, 5e-324]},
}


def run(env, source, variables):
    try:
        return {"output": env.from_string(source).render(**variables)}
    except Refusal as refusal:
        return {"refusal": str(refusal)}
    except Exception as error:  # every kind of failure counts as one
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    env = environment()
    cases = []
    for name in TEMPLATES:
        source = (ROOT / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
        for title, messages in CONVERSATIONS.items():
            for i, options in enumerate(OPTIONS):
                variables = {"messages": messages, "add_generation_prompt": True,
                             "bos_token": "<bos>", "eos_token": "<eos>", **options}
                result = run(env, source, variables)
                cases.append({"template": name, "name": f"{name}/{title}/{i}",
                              "conversation": title, "options": i, **result})
    seen = {}
    kept = []
    for case in cases:  # options a template ignores give the same text again
        key = (case["template"], case["conversation"], case.get("output"), case.get("refusal"))
        if key in seen:
            continue
        seen[key] = True
        kept.append(case)
    snippets = [{"source": s, **run(env, s, VARIABLES)} for s in SNIPPETS]
    golden = {"made_by": f"jinja2 {jinja2.__version__}", "conversations": CONVERSATIONS,
              "options": OPTIONS, "variables": VARIABLES, "templates": kept, "snippets": snippets}
    text = json.dumps(golden, ensure_ascii=False, indent=1)
    (ROOT / "golden.json").write_text(text + "\n", encoding="utf-8")
    errors = sum("error" in s for s in snippets)
    print(f"{len(kept)} template cases, {len(snippets)} snippets ({errors} errors)")


if __name__ == "__main__":
    main()
