"""The word count as a plugin whose restarts come at once: by default they wait five seconds."""

from tests.plugin_zoo.zoo import whole

IMPATIENT = whole(
    "impatient",
    """
    from bicycle_sdk import RestartStrategy, StreamEnvironment, bicycle_plugin
    from wordcount import WordCountParams, wordcount


    @bicycle_plugin(name="impatient", version="1.0")
    def job(env: StreamEnvironment, params: WordCountParams) -> None:
        env.set_restart_strategy(RestartStrategy.fixed_delay(max_attempts=3, delay_ms=100))
        wordcount(env, params)
    """,
)
