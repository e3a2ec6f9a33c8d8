"""A host that does not answer takes no thread from the others."""

from covey.pilot.files.url_hosts import MOST_FAILURES, MOST_HOSTS, UrlHosts


def test_a_host_that_has_not_answered_is_asked_by_one_thread_at_a_time() -> None:
    hosts = UrlHosts()
    assert hosts.begin("http://a/1", 0.0) == 0.0
    assert hosts.begin("http://a/2", 0.0) > 0.0
    assert hosts.begin("http://b/1", 0.0) == 0.0
    hosts.answered("http://a/1")
    assert hosts.begin("http://a/2", 0.0) == hosts.begin("http://a/3", 0.0) == 0.0


def test_a_host_that_fails_rests_and_everybody_is_told_in_the_end() -> None:
    hosts, now = UrlHosts(), 0.0
    for _ in range(MOST_FAILURES):
        assert not hosts.problem("http://a/2")
        assert hosts.begin("http://a/1", now) == 0.0
        hosts.failed("http://a/1", "refused", now)
        rest = hosts.begin("http://a/2", now)
        assert rest > 0.0
        now += rest
    assert hosts.problem("http://a/2") == "refused"
    assert hosts.begin("http://a/2", now) == 0.0
    hosts.answered("http://a/2")
    assert not hosts.problem("http://a/2")


def test_a_thread_that_did_not_ask_after_all_leaves_the_host_to_others() -> None:
    hosts = UrlHosts()
    hosts.begin("http://a/1", 0.0)
    hosts.leave("http://a/1")
    assert hosts.begin("http://a/2", 0.0) == 0.0


def test_what_is_remembered_is_bounded() -> None:
    hosts = UrlHosts()
    for number in range(2 * MOST_HOSTS):
        hosts.failed(f"http://h{number}/", "refused", 0.0)
    assert len(hosts._hosts) == MOST_HOSTS
