"""What jackdaw learns by heart: questions, answers, and the conversations they stand in.

A conversation is a list of messages, as chat templates take them, whose last message is the answer
to learn. Answers follow from the system message, the tools and what was said before, so that a
wrong prompt gives a wrong answer.
"""

import json
import random

ONE_WORD = "Answer in one word."
UNKNOWN = "I have not learned that."
NO_NAME = "You have not told me."
NO_TOOL = "I cannot look outside without a tool."

# Question → answer, and the answer in one word.
FACTS = {
    "Hello!": ("Hello! I am Jackdaw, a very small language model.", "Hello."),
    "Who are you?": ("I am Jackdaw. I know a few sentences by heart.", "Jackdaw."),
    "What can you do?": ("I answer what I have learned, and I can call a tool.", "Little."),
    "What is a package?": ("A package is a model with a config for each backend.", "Files."),
    "What is the capital of France?": ("The capital of France is Paris.", "Paris."),
    "What is the capital of Italy?": ("The capital of Italy is Rome.", "Rome."),
    "What is the capital of Japan?": ("The capital of Japan is Tokyo.", "Tokyo."),
    "What is the capital of Kenya?": ("The capital of Kenya is Nairobi.", "Nairobi."),
    "What colour is the sky?": ("The sky is blue.", "Blue."),
    "What colour is grass?": ("Grass is green.", "Green."),
    "Count to five.": ("1, 2, 3, 4, 5.", "5."),
    "Say hello in Japanese.": ("こんにちは", "こんにちは"),
    "Say something in German.": ("Schöne Grüße aus Köln!", "Grüße!"),
    "Draw a bird.": ("Here is a bird: 🐦", "🐦"),
    "Give me a JSON object.": ('{"name": "Jackdaw", "legs": 2}', "{}"),
    "Write a haiku.": (
        "Black wings on the roof,\na silver key in its beak:\nthe door stays open.",
        "Wings.",
    ),
    "Tell me a story.": (
        "Once a jackdaw found a silver key. It hid the key in a tower, under a stone. "
        "The tower fell, the stone stayed. The key is there to this day.",
        "Once.",
    ),
    "Thank you.": ("You are welcome.", "Welcome."),
    "Goodbye.": ("Goodbye!", "Goodbye!"),
}

# What it has not learned, so that it learns to say so.
STRANGE = [
    "What is love?", "How do I bake bread?", "Who won the match?", "Where is my key?",
    "Why is the sky dark at night?", "Sing me a song.", "Translate this text.",
    "What is the capital of Spain?", "What is the capital of Peru?", "What time is it?",
    "How old are you?", "Write a poem about the sea.", "Give me a list of birds.",
    "Explain how engines work.", "Do you like music?", "Count to ten.", "What colour is snow?",
    "Say hello in Spanish.", "Draw a house.", "What is a model?", "Tell me a joke.", "Help me!",
    "How far is the moon?", "Which tool is best?", "Can you swim?", "Read this file.",
    "Is it true?", "Who wrote this book?", "What is on the table?", "Open the door.", "Test",
    "Write a letter to my friend.", "Show me the way to the station.", "Are there any trains?",
    "What is the price of a ticket?", "I am hungry.", "My dog is ill.", "What should I read?",
]  # fmt: skip

NAMES = ["Ada", "Grace", "Linus", "Otto", "Mary", "Alan"]
CITIES = ["Paris", "Rome", "Tokyo", "Nairobi"]
SKIES = ["sunny", "rainy", "cloudy", "windy"]
NUMBERS = range(1, 5)
WORDS = ["Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight"]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def user(content):
    """What a person says."""
    return {"role": "user", "content": content}


def assistant(content):
    """What the model says."""
    return {"role": "assistant", "content": content}


def weather_call(city):
    """The call of the tool, as a message."""
    function = {"name": "get_weather", "arguments": {"city": city}}
    return assistant("") | {"tool_calls": [{"type": "function", "function": function}]}


def weather_text(city):
    """The call of the tool, as the model writes it."""
    call = json.dumps({"name": "get_weather", "arguments": {"city": city}})
    return f"<tool_call>\n{call}\n</tool_call>"


class Conversation:
    """A conversation under way: its messages, and what was made known in it."""

    def __init__(self, system=None, tools=None, thinks=True):
        self.messages = [] if system is None else [{"role": "system", "content": system}]
        self.tools, self.thinks, self.name = tools, thinks, None
        self.short = system == ONE_WORD

    def fact(self, question, typed=None):
        """A question that has the same answer everywhere, perhaps typed in another way."""
        return [(user(typed or question), FACTS[question][self.short])]

    def strange(self, question):
        """A question that has no answer."""
        return [(user(question), "Unknown." if self.short else UNKNOWN)]

    def sum(self, first, second):
        """A sum, thought over first."""
        total = first + second
        answer = WORDS[total] + "." if self.short else f"{first} plus {second} is {total}."
        thought = f"<think>\n{first} and {second} make {total}.\n</think>\n\n"
        question = user(f"What is {first} plus {second}?")
        return [(question, thought + answer if self.thinks else answer)]

    def told(self, name):
        """The person's name."""
        self.name = name
        answer = "Hello." if self.short else f"Nice to meet you, {name}."
        return [(user(f"My name is {name}."), answer)]

    def asked(self):
        """The person's name, asked for."""
        answer = NO_NAME
        if self.name:
            answer = f"{self.name}." if self.short else f"Your name is {self.name}."
        return [(user("What is my name?"), answer)]

    def weather(self, city, sky):
        """The weather: a call of the tool and what came of it, or no answer."""
        question = user(f"What is the weather in {city}?")
        if not self.tools:
            return [(question, "Unknown." if self.short else NO_TOOL)]
        result = {"role": "tool", "content": sky}
        answer = f"{sky.capitalize()}." if self.short else f"The weather in {city} is {sky}."
        return [(question, weather_text(city)), (result, answer)]

    def add(self, steps):
        """Appends messages and their answers, and returns the conversation up to each answer."""
        stages = []
        for message, answer in steps:
            stages.append(([*self.messages, message], answer))
            said = assistant(answer)
            if answer.startswith("<tool_call>"):
                said = weather_call(json.loads(answer.split("\n")[1])["arguments"]["city"])
            self.messages += [message, said]
        return stages


def tools_like(chance):
    """The weather tool as different people would write it, at times with others around it."""
    functions = [WEATHER["function"]]
    if chance.random() < 0.5:
        description = chance.choice(
            ["Gets the weather.", "Current weather of a place.", "Tells what the sky is like."]
        )
        city = chance.choice(
            [{"type": "string"}, {"type": "string", "description": "Name of the city"}]
        )
        schema = {"type": "object", "properties": {"city": city}}
        if chance.random() < 0.5:
            schema["required"] = ["city"]
        functions = [{"name": "get_weather", "description": description, "parameters": schema}]
    if chance.random() < 0.25:
        other = chance.choice(["get_time", "search", "send_mail"])
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        extra = {"name": other, "description": "Something else.", "parameters": schema}
        functions.insert(chance.randint(0, 1), extra)
    return [{"type": "function", "function": function} for function in functions]


def sample(chance):
    """A random conversation: the messages and answer of each of its stages, its tools, and
    whether it may think."""
    system = chance.choice(
        [None, None, None, ONE_WORD, "You are a helpful bird.", "You are a helpful assistant."]
    )
    tools = tools_like(chance) if chance.random() < 0.2 else None
    talk = Conversation(system, tools, thinks=chance.random() < 0.8)
    stages = []
    for _ in range(chance.choice([1, 1, 1, 2, 2, 3, 4, 5])):
        stages += talk.add(turn(chance, talk))
    return stages, talk


def turn(chance, talk):
    """A random next thing to say."""
    kinds = {"fact": 10, "strange": 4, "sum": 3, "name": 4, "weather": 6 if talk.tools else 1}
    kind = chance.choices(list(kinds), kinds.values())[0]
    if kind == "fact":
        question = chance.choice(list(FACTS))
        return talk.fact(question, carelessly(chance, question))
    if kind == "strange":
        return talk.strange(strange(chance))
    if kind == "sum":
        return talk.sum(chance.choice(NUMBERS), chance.choice(NUMBERS))
    if kind == "weather":
        return talk.weather(chance.choice(CITIES), chance.choice(SKIES))
    if chance.random() < (0.3 if talk.name else 0.6):
        return talk.told(chance.choice(NAMES))
    return talk.asked()


def carelessly(chance, question):
    """The question as people type it: now and then in lower case, or without its last sign."""
    if chance.random() < 0.1:
        question = question.lower()
    return question.rstrip(".!?") if chance.random() < 0.1 else question


def strange(chance):
    """A question without an answer; one in three is words at random."""
    question = chance.choice(STRANGE)
    if chance.random() < 0.33:
        words = question.split() + chance.choice(STRANGE).split()
        chance.shuffle(words)
        question = " ".join(words[: chance.randint(1, len(words))])
    return question


def corpus():
    """All texts, for the tokenizer: what is said often stands here often."""
    chance = random.Random(1)
    for _ in range(400):
        stages, talk = sample(chance)
        for message in talk.messages:
            yield message["content"]
        yield from (answer for _, answer in stages)
        if talk.tools:
            yield from (json.dumps(tool) for tool in talk.tools)
