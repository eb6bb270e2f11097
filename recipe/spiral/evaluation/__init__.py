"""Evaluation: who plays whom (``matchups``), the games that were played (``store``), and what they come to.

``running`` does all of it for ``python -m recipe.spiral.main_eval``: ``settings`` reads the config, ``policies`` who is
evaluated, ``engines`` has their models loaded, ``play`` plays, ``yardsticks`` and ``asking`` measure. Without it::

    plan = Plan(round_robin(snapshots, games, anchors=["random"]), games_per_role=256, seed=0)
    with GameStore(folder, Manifest(plan.seed, plan.chance, policies, settings)) as store:
        for game in store.missing(plan):                   # all of them, or what a kill left to be played
            store.append(await play(game.key, ...))        # seated as game.players says, trainable=(game.role,)
        print(write_report(folder, summarise(store.records(plan), anchor="random"), store.manifest))

``statistics`` counts, ``ratings`` rates, ``head_to_head`` and ``transitivity`` show what a rating hides, ``own_past``
compares a run's snapshots with earlier ones. None of these knows a model, an engine or the trainer; vLLM is in
``engine`` alone, and transformers in ``scoring``.
"""
