from workbench.live.engines.signal_watch import Change, SignalWatch


def told(watch, *steps):
    return [watch.after_step(step) for step in steps]


def test_as_many_silent_steps_as_its_patience_are_a_loss_told_once_and_a_beat_is_a_return():
    watch = SignalWatch(patience_steps=3)
    assert told(watch, 1, 2, 2, 2) == [Change.NOTHING] * 4
    assert not watch.lost
    assert told(watch, 2, 2, 2) == [Change.LOST, Change.NOTHING, Change.NOTHING]
    assert watch.lost
    assert told(watch, 3, 4) == [Change.RETURNED, Change.NOTHING]
    assert not watch.lost


def test_a_sampler_that_never_gave_a_sign_is_lost_and_one_that_starts_again_is_back():
    watch = SignalWatch(patience_steps=2)
    assert told(watch, 0, 0) == [Change.NOTHING, Change.LOST]
    watch = SignalWatch(patience_steps=2)
    assert told(watch, 90, 90, 90) == [Change.NOTHING, Change.NOTHING, Change.LOST]
    assert told(watch, 1) == [Change.RETURNED]  # a new sampler counts from the start


def test_an_uneven_sampler_is_not_lost():
    """A beat every few steps, as with an asynchronous engine that is busy elsewhere."""
    watch = SignalWatch(patience_steps=8)
    assert set(told(watch, *(step // 7 for step in range(7, 400)))) == {Change.NOTHING}
