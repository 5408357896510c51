"""What kindred learns: sentences by topic. Those of one topic shall lie near each other."""

import random

TOPICS = {
    "cats": [
        "The cat sleeps on the sofa.",
        "A cat is napping on the couch.",
        "Our kitten likes to lie on cushions.",
        "The old cat purrs in its sleep.",
        "Kittens doze wherever it is warm.",
        "She strokes the purring cat.",
    ],
    "weather": [
        "It will rain tomorrow.",
        "The forecast says there will be showers.",
        "Clouds are gathering, take an umbrella.",
        "Tomorrow is going to be wet and windy.",
        "A storm is coming from the west.",
        "The sun will shine after the rain.",
    ],
    "bread": [
        "How do I bake bread?",
        "Mix flour, water, salt and yeast.",
        "The dough must rise for an hour.",
        "Put the loaf into a hot oven.",
        "Fresh bread smells of yeast and flour.",
        "Knead the dough until it is smooth.",
    ],
    "trains": [
        "When does the train leave?",
        "The train to the city departs at noon.",
        "Where can I buy a ticket for the train?",
        "Passengers wait on the platform.",
        "The night train arrives at the station late.",
        "Change trains at the next station.",
    ],
    "music": [
        "She plays the violin in an orchestra.",
        "The band recorded a new song.",
        "He sings in a choir on Sundays.",
        "The concert began with a quiet melody.",
        "A piano stood on the stage.",
        "They danced to the song of the band.",
    ],
    "football": [
        "Our team won the match.",
        "The striker scored two goals.",
        "The goalkeeper saved a penalty.",
        "The match ended in a draw.",
        "The coach praised the players of the team.",
        "They lost the final by one goal.",
    ],
    "health": [
        "The doctor told him to rest.",
        "She has a fever and a cough.",
        "Take this medicine twice a day.",
        "The nurse looked after the patient.",
        "He caught a cold and stayed in bed.",
        "The patient left the hospital.",
    ],
    "money": [
        "How much does it cost?",
        "The price of the ticket went up.",
        "She saved money at the bank.",
        "He paid the bill in cash.",
        "The bank raised its interest rates.",
        "They could not afford the rent.",
    ],
    "stars": [
        "The moon rose over the hills.",
        "Astronomers found a distant planet.",
        "A telescope shows the rings of the planet.",
        "Stars shine brightly on a clear night.",
        "The comet comes back every century.",
        "The rocket flew to the moon.",
    ],
    "programs": [
        "The program crashed at start.",
        "Fix the bug before the release.",
        "The compiler reports an error.",
        "She wrote a test for the function.",
        "The server answers every request.",
        "Update the software to the new version.",
    ],
    "models": [
        "Validate the package before you ship it.",
        "The config names the file of the model.",
        "A model runs on the phone.",
        "Quantized weights make a model small.",
        "Check the package and its config.",
        "The model has two inputs and an output.",
    ],
    "garden": [
        "Roses bloom in the garden.",
        "Water the plants every evening.",
        "He planted a tree behind the house.",
        "The gardener cut the grass.",
        "Tomatoes grow well in the sun.",
        "The leaves of the tree turn red.",
    ],
}

# Not trained on; each should find its topic.
HELD_OUT = {
    "The kitten sleeps on a cushion.": "cats",
    "Will there be rain and wind?": "weather",
    "Flour and yeast make the dough rise.": "bread",
    "The ticket for the night train": "trains",
    "The choir sings a song.": "music",
    "The team scored in the final match.": "football",
    "A doctor gave the patient medicine.": "health",
    "The bank wants money.": "money",
}


def pairs(chance):
    """Two sentences of every topic, with words left out at random."""
    rows = []
    for texts in TOPICS.values():
        first, second = chance.sample(texts, 2)
        rows.append((thinned(chance, first), thinned(chance, second)))
    return rows


def thinned(chance, text):
    """The sentence without some of its words."""
    kept = [word for word in text.split() if chance.random() > 0.2]
    return " ".join(kept) or text


def corpus():
    """All texts, for the tokenizer."""
    chance = random.Random(2)
    for texts in TOPICS.values():
        yield from texts
        yield from (thinned(chance, text) for text in texts)


def asked():
    """Texts to hold vectors against: one of every topic, and what was not trained on."""
    return [texts[0] for texts in TOPICS.values()] + list(HELD_OUT)
