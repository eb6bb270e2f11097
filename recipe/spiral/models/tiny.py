"""dev"""
from ..prompts import get_template
from .examples import random_play, boxed
from .tokenizer import train, chat_texts
def corpus(games, template, seed=0):
    t = get_template(template)
    texts=[]
    for g in games:
        for s in random_play(g, 300, seed):
            for o in [s.observation, *(q.about(s.observation) for q in s.questions)]:
                ms=t.messages(o)
                texts += [ms[0]["content"]] if t.plain else chat_texts(ms)
            texts += [boxed(a) for a in s.legal] + [boxed(q.answer) for q in s.questions]
    return texts
