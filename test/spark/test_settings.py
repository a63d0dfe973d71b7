"""Settings and names, which need no session."""

import inspect

from horovod.spark import _environment, _place, conf, run, run_elastic


def test_signatures_are_horovods():
    assert (
        list(inspect.signature(run).parameters)
        == (
            "fn args kwargs num_proc start_timeout use_mpi use_gloo extra_mpi_args env stdout stderr verbose nics "
            "prefix_output_with_timestamp executable"
        ).split()
    )
    assert (
        list(inspect.signature(run_elastic).parameters)
        == (
            "fn args kwargs num_proc min_num_proc max_num_proc start_timeout elastic_timeout reset_limit env stdout "
            "stderr verbose nics prefix_output_with_timestamp min_np max_np"
        ).split()
    )


def test_ranks_are_numbered_host_by_host():
    hosts = ["b", "a", "b", "a", "c"]
    assert _place.ranks(hosts) == [0, 2, 1, 3, 4]
    places = [_place.variables(hosts, partition) for partition in _place.ranks(hosts)]
    assert [p["HOROVOD_RANK"] for p in places] == ["0", "1", "2", "3", "4"]
    assert [p["HOROVOD_LOCAL_RANK"] for p in places] == ["0", "1", "0", "1", "0"]
    assert [p["HOROVOD_CROSS_RANK"] for p in places] == ["0", "0", "1", "1", "2"]
    assert [p["HOROVOD_CROSS_SIZE"] for p in places] == ["3", "2", "3", "2", "3"]


def test_gpus_of_a_host_in_the_order_of_local_ranks():
    assert _environment.visible([["2"], ["0"]], 0) == ({"CUDA_VISIBLE_DEVICES": "2,0"}, ["0"])
    assert _environment.visible([["4", "5"], ["0", "1"]], 1) == ({"CUDA_VISIBLE_DEVICES": "4,0,5,1"}, ["1", "3"])
    assert _environment.visible([[], []], 1) == ({}, [])


def test_conf_has_pairs_of_known_keys():
    pairs = {name: value for name, value in vars(conf).items() if isinstance(value, tuple)}
    assert len(pairs) == 17
    for name, (key, value) in pairs.items():
        assert name.startswith("SPARK_CONF_") and key in conf.SPARK_CONF_DEFAULT_VALUES and isinstance(value, str)
