"""Tests that `make nightly` runs, and `make test` does not, because they take long and others check the same rule.

`LONG` names them by the beginning of their ids. What stays in `make test` is said above each group.

Of a test with the mark `product`, which runs for every combination of several parameters, `make test` runs as many
combinations as it takes to show each value of each parameter (`left_out`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the combinations of tests with the mark `product` that show no value that others do not show.

    Combinations for a GPU are a set of their own, because they are skipped where there is none. Those that are left to
    the night anyway do not count.
    """
    sets: dict[tuple[str, bool], list[pytest.Function]] = defaultdict(list)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if isinstance(item, pytest.Function) and "product" in marks and "nightly" not in marks:
            sets[item.nodeid.partition("[")[0], "gpu" in marks].append(item)
    return [item for rows in sets.values() for item in _superfluous(rows)]


def _superfluous(rows: list[pytest.Function]) -> list[pytest.Function]:
    """All rows but a few that hold each value of each axis; values that were used seldom are combined first."""
    values = {row: tuple(enumerate(row.callspec._idlist)) for row in rows}
    used: Counter[tuple[int, str]] = Counter()
    rest = list(rows)
    while any(value not in used for row in rest for value in values[row]):
        row = max(rest, key=lambda r: (sum(v not in used for v in values[r]), -sum(used[v] for v in values[r])))
        used.update(values[row])
        rest.remove(row)
    return rest


LONG: tuple[str, ...] = (
    # The emitted text and the machine code of the example run with values in `make test`.
    "tests/simulate/test_examples.py::test_accepted[gemm_turns-",
    "tests/simulate/test_examples.py::test_rejected[gemm_turns]",
    # Parts of a sum that overlap: the class `parts_not_once` of tests/reject stays.
    "tests/verify/test_accumulated.py::test_parts_that_overlap",
    # The layer of experts and its activations: another number of tokens and another activation stay.
    "tests/kernels/test_moe.py::test_activations[cpu-swiglu]",
    "tests/kernels/test_moe.py::test_activations[cpu-clamped_swiglu]",
    "tests/kernels/test_moe.py::test_activations[cpu-geglu]",
    "tests/kernels/test_moe.py::test_layer[cpu-1]",
    "tests/kernels/test_moe.py::test_layer[cpu-70]",
    "tests/kernels/test_moe.py::test_products_are_proved[few gathered rows]",
    # As operators: PyTorch's own checks of the layer of experts, and all that is asked of its parts, stay.
    "tests/torch/test_library.py::test_functions_are_operators[traced-moe]",
    "tests/torch/test_library.py::test_functions_are_operators[traced with any sizes-moe]",
    "tests/torch/test_library.py::test_functions_are_operators[exported-moe]",
    "tests/torch/test_library.py::test_functions_are_operators[described-moe]",
    # Generated kernels in the simulator: the laws of their runs stay.
    "tests/simulate/test_generated.py::test_every_property_is_broken_by_some_kernel_and_kept_by_some",
    # Attention with windows: one wrong bound, and the proofs of the right ones, stay.
    "tests/kernels/test_attention_with.py::test_wrong_windows_are_not_proved[(m0 + (N - M) + 1",
    "tests/kernels/test_attention_with.py::test_wrong_windows_are_not_proved[ends[:, None] - WINDOW",
    # Gradients of attention: the small sizes, and the proofs for sm_90a, stay.
    "tests/kernels/test_attention_backward.py::test_a_wrong_gradient_is_not_proved[rows + (N - M) + 1",
    "tests/kernels/test_attention_backward.py::test_results[cpu-sizes2",
    "tests/kernels/test_attention_backward.py::test_results[cpu-sizes3",
    "tests/kernels/test_attention_backward.py::test_results[cpu-sizes4",
    "tests/kernels/test_attention_backward.py::test_proved[gfx942-128-tiles3",
    "tests/kernels/test_attention_backward.py::test_proved[sm_80-128-tiles2",
    # Pairs of wrong and right orders: the other pairs stay.
    "tests/verify/test_false_orders.py::test_pair[products of two shapes into the same registers]",
    "tests/verify/test_false_orders.py::test_pair[a fence for half a warp]",
    # Clusters: the other edits of the same kernels stay.
    "tests/verify/test_clusters.py::test_refuted[the last buffers are told to the own block]",
    "tests/verify/test_clusters.py::test_refuted[nobody waits for free buffers]",
    "tests/passes/test_clusters.py::test_arrivals_that_reach_blocks_which_bring_nothing_are_not_proved",
    "tests/reject/test_corpus.py::test_rejected[cluster_peer_not_waited_for-gemm_hopper-",
    # Warpgroups with rows of their own: `rows are handed back while a product reads them` stays.
    "tests/verify/test_apart.py::test_rejected[scratch is written while a store may read it]",
    "tests/verify/test_apart.py::test_rejected[only one thread knows that a store has read]",
    "tests/verify/test_apart.py::test_rejected[the last store may still read]",
    "tests/verify/test_apart.py::test_rejected[rows are handed back an iteration early]",
    # Programs of loaded numbers: the accepted ones, and the other refuted ones, stay.
    "tests/verify/test_loaded_programs.py::test_programs_of_another_expert_are_refuted_or_unknown",
    "tests/verify/test_loaded_programs.py::test_programs_that_take_no_turn_are_not",
    # Two groups that take turns: the small sizes, the other edits and the accepted ones stay.
    "tests/passes/test_pingpong.py::test_simulated[264",
    "tests/verify/test_alike_turns.py::test_rejected[the first turn comes in each program]",
    "tests/verify/test_pingpong.py::test_rejected[a turn is not handed over]",
    "tests/verify/test_pingpong.py::test_rejected[no group waits for its turn]",
    "tests/reject/test_corpus.py::test_rejected[ping_pong_order-gemm_pingpong-",
    # Wrong kernels that are long: shorter ones of the same classes stay.
    "tests/reject/test_corpus.py::test_rejected[bulk_wait_off_by_one-gemm_hopper-0]",
    "tests/reject/test_corpus.py::test_rejected[role_barrier_count-gemm_hopper-0]",
    "tests/reject/test_corpus.py::test_rejected[fewer_barriers_than_stages-gemm_hopper-0]",
    "tests/reject/test_corpus.py::test_rejected[softmax_wrong-attention_forward-0]",
    # Roles that are alike: the other edits stay.
    "tests/verify/test_alike.py::test_rejected[none hands its last buffer back]",
    "tests/verify/test_alike.py::test_rejected[their rows are filled before they are free]",
    "tests/verify/test_alike.py::test_rejected[none waits for its products]",
    # A first call that is traced: the same test of a user's kernel, in tests/torch/test_compile.py, stays.
    "tests/torch/test_library.py::test_the_first_call_may_be_a_traced_one",
    # Page tables: the first edit stays.
    "tests/verify/test_pages.py::test_another_page_or_length_is_refuted[p * PAGE",
    "tests/verify/test_pages.py::test_another_page_or_length_is_refuted[vt = ",
    # Attention by parts of the keys: one of the two forms stays.
    "tests/kernels/test_attention.py::test_parts_are_proved[True]",
    # Mutants: those of shorter kernels stay.
    "tests/mutate/test_trial.py::test_a_proved_mutant_in_clusters_runs_under_the_schedules_of_all_blocks",
    "tests/mutate/test_trial.py::test_nothing_is_missed_of_specified_kernels[transpose-None-50-sm_80]",
    "tests/mutate/test_trial.py::test_nothing_is_missed_of_specified_kernels[gemm_explicit-6-3-sm_80]",
    # The rows of benchmarks: their other tests stay.
    "tests/benchmarks/test_benchmarks.py::test_a_cold_start_has_its_steps",
    # Attention with windows, sinks and capped scores: three of the ways, with their proofs and results, stay.
    "tests/kernels/test_attention_with.py::test_results[cpu-sizes3",
    "tests/kernels/test_attention_with.py::test_results[cpu-sizes4",
    "tests/kernels/test_attention_with.py::test_results[cpu-sizes5",
    "tests/kernels/test_attention_with.py::test_proved[sm_90a-constants1",
    "tests/kernels/test_attention_with.py::test_proved[sm_90a-constants2",
    "tests/kernels/test_attention_with.py::test_proved[sm_80-constants4",
    "tests/kernels/test_attention_with.py::test_proved[sm_80-constants5",
    # Attention and its gradients: other rows and heads, and one wrong gradient, stay.
    "tests/kernels/test_attention_backward.py::test_a_wrong_gradient_is_not_proved[r = p",
    "tests/kernels/test_attention_backward.py::test_a_scale_and_a_gradient_of_the_log_sum_exp[cpu]",
    "tests/kernels/test_attention.py::test_in_turns[True]",
    "tests/kernels/test_attention.py::test_parts_of_the_keys[True]",
    "tests/kernels/test_attention.py::test_heads_together[3]",
    # The largest rows and reductions on the host: smaller ones of the same kernels stay.
    "tests/kernels/test_reduce.py::test_long_reductions_are_cut_into_parts[cpu-shape0-0]",
    "tests/kernels/test_layernorm.py::test_long_rows_are_proved",
    "tests/kernels/test_topk.py::test_topk[cpu-shape0-3-float16]",
    "tests/kernels/test_topk.py::test_proved[sm_80]",
    # Parts of a product: two of the sizes stay.
    "tests/kernels/test_split.py::test_values[96-193]",
    "tests/kernels/test_split.py::test_values[128-40]",
    "tests/kernels/test_split.py::test_values[64-0]",
    # Updates by the copy engine: one of the forms, and all the wrong ones, stay.
    "tests/verify/test_bulk_reduce.py::test_proved_and_so_it_is[persistent]",
    "tests/verify/test_bulk_reduce.py::test_proved_and_so_it_is[panels]",
    # Page tables: the last edit stays.
    "tests/verify/test_pages.py::test_another_page_or_length_is_refuted[page = ",
    # Shares of a sum, and loops of roles: the other kernels of the same files stay.
    "tests/verify/test_accumulated.py::test_equal_shares",
    "tests/passes/test_addresses.py::test_roles_whose_loops_run_to_other_lengths_are_not_proved",
    "tests/verify/test_covers.py::test_wrong_products_of_segments[w[e, n0",
    # Products of groups of warps: the other cases stay.
    "tests/simulate/test_roles.py::test_other_numbers_of_stages[4]",
    "tests/backend/cuda/test_hopper_code.py::test_maxima_of_attention_run_beside_its_second_product[64-",
    "tests/backend/test_hazards.py::test_attention_as_it_is_assembled_here[False]",
    # Pairs of entries: those of the same rewrite on another kernel stay.
    "tests/knowledge/test_entries.py::test_a_pair_is_proved_and_keeps_its_task[specialise-gathered]",
    # Kernels with mistakes that are repaired: shorter ones stay.
    "tests/agents/test_repair.py::test_one_mistake_is_repaired[missing wait]",
    "tests/agents/test_repair.py::test_one_mistake_is_repaired[wait for too few]",
    # Graphs of convolutions and scans: the others of the same kind stay.
    "tests/graph/test_windows.py::test_implicit_product[transposed, rows of channels]",
    "tests/graph/test_windows.py::test_convolution_without_strides_reads_boxes[border]",
    "tests/graph/test_windows.py::test_convolution_without_strides_reads_boxes[dilated]",
    "tests/graph/test_windows.py::test_convolution_without_strides_reads_boxes[transposed]",
    "tests/graph/test_wrong_generators.py::test_what_a_wrong_generator_makes_is_not_taken[one term too few]",
    # Corpus of wrong kernels: shorter ones of the same classes, and the accepted twins, stay.
    "tests/reject/test_corpus.py::test_rejected[parts_not_once-stream_k_atomic-9]",
    # Roots of nested divisions: the other wrong and right texts stay.
    "tests/verify/test_joined.py::test_never_proved[text3-h = i // W % H-h = i // W % (H - 1)]",
    # Attention in graphs: one of the 16-bit types stays; of its sizes on the host, three.
    "tests/graph/test_attention.py::test_products_of_attention_multiply_the_16_bit_floats[dtype0]",
    "tests/kernels/test_attention.py::test_results[cpu-sizes3",
    "tests/kernels/test_attention.py::test_results[cpu-sizes4",
    # Every function of the headers as machine code: that of sm_80, and each function on the host, stay.
    "tests/backend/cuda/test_header.py::test_compiled_code_is_a_cubin[sm_90a]",
    # The rows of benchmarks: what refuses them stays.
    "tests/benchmarks/test_benchmarks.py::test_every_memory_kernel_and_its_peer_meet_the_exact_result",
    # Pairs of entries that take the longest: those of other entries of the same kind stay.
    "tests/knowledge/test_entries.py::test_a_pair_is_proved_and_keeps_its_task[columns-by-expert]",
    "tests/knowledge/test_entries.py::test_a_pair_is_proved_and_keeps_its_task[tiles-of-an-expert-together]",
    # Packed sequences: of the wrong rows, those that are not masked stay, and the proofs of the right ones.
    "tests/kernels/test_attention_varlen.py::test_wrong_rows_are_not_proved[seen = ",
    "tests/kernels/test_attention_varlen.py::test_wrong_rows_are_not_proved[last = ",
    # Every function of the headers as machine code: that of sm_80, and kernels of sm_90a with their code, stay.
    "tests/backend/cuda/test_header.py::test_machine_code[sm_90a]",
    # Proofs of kernels that ship: those of other tiles, heads, types or targets of the same kernel stay, and each
    # kernel's proof for the host (tests/kernels/test_on_the_host.py).
    "tests/kernels/test_attention.py::test_parts_are_proved",
    "tests/kernels/test_attention.py::test_proved[sm_90a-64-tiles0",
    "tests/kernels/test_attention.py::test_proved[sm_90a-64-tiles1",
    "tests/kernels/test_attention.py::test_proved[sm_90a-64-tiles4",
    "tests/kernels/test_attention.py::test_proved[sm_90a-128-tiles2",
    "tests/kernels/test_attention.py::test_proved[gfx942-128-tiles8",
    "tests/kernels/test_attention_backward.py::test_proved[sm_90a-128-tiles1-queries-True",
    "tests/kernels/test_attention_decode.py::test_proved[sm_90a-constants1",
    "tests/kernels/test_attention_varlen.py::test_proved[sm_90a-constants0",
    "tests/kernels/test_attention_varlen.py::test_proved[sm_90a-constants1",
    "tests/kernels/test_attention_with.py::test_proved[sm_90a-constants3",
    "tests/kernels/test_backward.py::test_norms_are_proved[layernorm-sm_90a",
    "tests/kernels/test_cross_entropy.py::test_proved[sm_80",
    "tests/kernels/test_linear_attention.py::test_proved[states_before-sm_90a",
    "tests/kernels/test_linear_attention.py::test_proved[chunk_states-gfx942",
    "tests/kernels/test_mixture_blocks.py::test_proved[sm_90a",
    "tests/kernels/test_moe.py::test_activations_are_proved[geglu",
    "tests/kernels/test_moe.py::test_gradients_of_weights_are_proved",
    "tests/kernels/test_moe.py::test_products_are_proved[gated rows",
    "tests/kernels/test_packed.py::test_proved[int4",
    "tests/kernels/test_routing.py::test_proved[sm_80",
    "tests/kernels/test_split.py::test_parts_in_clusters_are_proved[shape1",
    "tests/kernels/test_topk.py::test_proved[sm_90a",
    # Wrong twins of kernels that ship: those of the same kernel that take less time stay, and the nightly mutants.
    "tests/kernels/test_blockwise.py::test_wrong_twins_are_not_proved[product_of_blocks-acc",
    "tests/kernels/test_blockwise.py::test_wrong_twins_are_not_proved[product_of_blocks-        second",
    "tests/kernels/test_cache_append.py::test_wrong_numbers_of_8_bits_are_not_proved[x + 0.5), 127.0",
    "tests/kernels/test_cross_entropy.py::test_other_losses_are_refuted[part * 2.0",
    "tests/kernels/test_cross_entropy.py::test_other_losses_are_refuted[part + highest]",
    "tests/kernels/test_cross_entropy.py::test_other_losses_are_refuted[part + (highest - 2.0",
    "tests/kernels/test_moe.py::test_wrong_twins_are_refuted[experts_backward-weight_gradients",
    "tests/verify/test_pingpong.py::test_rejected[nor where there are no products",
    "tests/verify/test_ranges.py::test_a_wrong_step_is_refuted[s_earlier",
    "tests/verify/test_ranges.py::test_a_wrong_step_is_refuted[s_totals",
    # Texts of attention on the host, and benchmarks of layers: other sizes and forms stay.
    "tests/kernels/test_attention_backward.py::test_text[sm_90a-sizes0-False",
    "tests/benchmarks/test_attention_added.py::test_ours_is_what_is_compared[sinks",
    "tests/benchmarks/test_layers.py::test_sides_agree[gated training",
    # Windows and convolutions of graphs: the others of the same kinds stay.
    "tests/graph/test_windows.py::test_convolution_without_strides_reads_boxes[lines",
    "tests/graph/test_windows.py::test_convolution_without_strides_reads_boxes[transposed, grown",
    "tests/graph/test_windows.py::test_joined_taps_are_read_by_boxes[strides of volumes",
    "tests/graph/test_windows.py::test_transposed_convolutions_with_strides_are_proved_by_phases[common factor",
    "tests/graph/test_windows.py::test_transposed_convolutions_with_strides_are_proved_by_phases[dilated",
    "tests/graph/test_windows.py::test_window_with_what_follows[groups, dilated",
    "tests/graph/test_windows.py::test_window_with_what_follows[transposed, groups, common factor",
    # Corpus of wrong kernels: quicker ones of the same classes stay; the accepted twins of those left out go with them.
    "tests/reject/test_corpus.py::test_accepted[split_k-",
    "tests/reject/test_corpus.py::test_accepted[stream_k_atomic-sm_80",
    "tests/reject/test_corpus.py::test_rejected[accumulation_not_atomic-split_k-",
    "tests/reject/test_corpus.py::test_rejected[async_copy_wait_missing-split_k-",
    "tests/reject/test_corpus.py::test_rejected[cluster_peer_not_waited_for-gemm-0",
    "tests/reject/test_corpus.py::test_rejected[grid_rounded_down-gemm-1",
    "tests/reject/test_corpus.py::test_rejected[lds_read_before_wait-gemm-3",
    "tests/reject/test_corpus.py::test_rejected[lds_read_before_wait-split_k-",
    "tests/reject/test_corpus.py::test_rejected[parity_wrong-linear-2",
    "tests/reject/test_corpus.py::test_rejected[parts_not_once-gemm-0",
    "tests/reject/test_corpus.py::test_rejected[parts_not_once-gemm-1",
    "tests/reject/test_corpus.py::test_rejected[parts_not_once-stream_k_atomic-",
    "tests/reject/test_corpus.py::test_rejected[peer_gone-cluster_softmax-1",
    "tests/reject/test_corpus.py::test_rejected[scratch_reused_too_early-gemm-1",
    "tests/reject/test_corpus.py::test_rejected[stale_accumulator_without_trips-gemm_explicit-1",
    "tests/reject/test_corpus.py::test_rejected[store_mask_unused-rmsnorm_rows-",
    "tests/reject/test_corpus.py::test_rejected[vmcnt_too_weak-split_k-",
    # Kernels of one row or tile, which are lowered alike for both: the proofs for sm_90a and for the host stay.
    "tests/kernels/test_layernorm.py::test_proved[sm_80",
    "tests/kernels/test_quantize.py::test_proved[sm_80",
    "tests/kernels/test_reduce.py::test_proved[sm_80",
    "tests/kernels/test_rmsnorm.py::test_proved[sm_80",
    "tests/kernels/test_softmax.py::test_proved[sm_80",
    "tests/kernels/test_attention_varlen.py::test_proved[sm_80",
    "tests/kernels/test_mixers.py::test_proved[sm_80",
    # Shapes of products whose text runs on the host: those with one such property each stay.
    "tests/kernels/test_gemm_hopper.py::test_values[two warpgroups, odd rows",
    "tests/kernels/test_gemm_hopper.py::test_values[two warpgroups, columns",
    "tests/kernels/test_gemm_hopper.py::test_values[in turns, swapped",
    "tests/kernels/test_gemm_hopper.py::test_values[few rows, two panels deep",
    "tests/kernels/test_gemm_hopper.py::test_values[256 rows",
    # Generators that are wrong: other wrong terms, constants, axes and masks stay.
    "tests/graph/test_wrong_generators.py::test_what_a_wrong_generator_makes_is_not_taken[a neighbour's element",
    "tests/graph/test_wrong_generators.py::test_what_a_wrong_generator_makes_is_not_taken[another factor",
    "tests/graph/test_wrong_generators.py::test_what_a_wrong_generator_makes_is_not_taken[a loop that ends early",
    "tests/graph/test_wrong_generators.py::test_what_a_wrong_generator_makes_is_not_taken[padding that counts",
    # Pairs of entries: those of pipelines, roles, tiles and turns on shorter kernels stay.
    "tests/knowledge/test_entries.py::test_a_pair_is_proved_and_keeps_its_task[stop-at-the-diagonal",
    "tests/knowledge/test_entries.py::test_a_pair_is_proved_and_keeps_its_task[specialise-attention",
    "tests/knowledge/test_entries.py::test_a_pair_is_proved_and_keeps_its_task[longest-programs-first",
    # Scans, windows and drawn graphs: the others of the same kinds stay.
    "tests/graph/test_random_graphs.py::test_drawn_graphs_are_those_of_eager[0",
    "tests/graph/test_random_graphs.py::test_drawn_graphs_are_those_of_eager[1",
    "tests/graph/test_random_graphs.py::test_drawn_graphs_are_those_of_eager[3",
    "tests/graph/test_scans.py::test_few_rows_are_reduced_in_registers[200-False",
    "tests/graph/test_scans.py::test_proved_and_equal[masked sums",
    "tests/graph/test_scans.py::test_proved_and_equal[products up to each in long rows",
    "tests/graph/test_scans.py::test_proved_and_equal[sums before each",
    "tests/graph/test_scans.py::test_proved_and_equal[sums of half precision",
    "tests/graph/test_scans.py::test_proved_and_equal[sums with what follows",
    "tests/graph/test_scans.py::test_scans_of_most_of_a_row_are_scans_of_rows[not from the front",
    "tests/graph/test_scans.py::test_scans_of_most_of_a_row_are_scans_of_rows[returned as it is",
    "tests/graph/test_windows.py::test_joined_taps_are_read_by_boxes[strides]",
    "tests/graph/test_windows.py::test_phases_of_a_transposed_convolution_are_filters[cut off",
    "tests/graph/test_windows.py::test_window_with_what_follows[transposed, groups]",
    "tests/graph/test_windows.py::test_window_with_what_follows[volumes",
    # Operands, tiles and updates whose text runs on the host or whose machine code is read: the others stay.
    "tests/backend/cuda/test_hopper_code.py::test_machine_code[256x128-8x1",
    "tests/backend/cuda/test_hopper_code.py::test_machine_code[64x256-4x2",
    "tests/backend/cuda/test_hopper_code.py::test_operands[groups side by side",
    "tests/backend/cuda/test_hopper_code.py::test_operands[repeated rows",
    "tests/backend/cuda/test_hopper_code.py::test_products_of_groups_that_take_turns_do_not_wait_for_one_another[128-1",
    "tests/backend/test_emit_examples.py::test_example[dropout-gfx942",
    "tests/backend/test_hopper_operands.py::test_operands[k by k",
    "tests/backend/test_hopper_operands.py::test_operands[m by k",
    "tests/backend/test_hopper_operands.py::test_operands[persistent, by columns",
    "tests/backend/test_hopper_operands.py::test_operands[registers by k",
    "tests/backend/test_waves_host.py::test_the_weakest_wait_that_is_proved_is_the_weakest_that_works[3",
    # Edits of kernels whose like another file refutes in another order of the same statements, and those stay.
    "tests/verify/test_covers.py::test_wrong_products_of_segments[, longest=most",
    "tests/verify/test_persistent.py::test_edits[the store's source is overwritten",
    "tests/verify/test_pingpong.py::test_rejected[a buffer is not given back",
    "tests/verify/test_spellings.py::test_gathered_scores[* al.load(q[b])-+ al.load(q[b])-False",
    "tests/verify/test_twins.py::test_rejected[gemm-13-tag-mismatch",
    "tests/verify/test_twins.py::test_rejected[gemm-14-tag-mismatch",
    "tests/verify/test_window.py::test_edits[the producer does not wait",
    # PyTorch's own checks of attention with everything: those of attention, decode and its gradients stay.
    "tests/torch/test_library.py::test_pytorchs_own_checks_pass[attention_with",
    # Mistakes that are repaired: shorter kernels stay.
    "tests/agents/test_repair.py::test_one_mistake_is_repaired[another reduction",
    # Attention with what is added, and packed weights: other forms of the same kernels stay.
    "tests/kernels/test_attention_with.py::test_proved[sm_80-constants8",
    "tests/kernels/test_attention_with.py::test_proved[sm_80-constants9",
    "tests/kernels/test_attention_with.py::test_proved[sm_90a-constants4",
    "tests/kernels/test_attention_with.py::test_what_is_added_is_proved[sm_90a-names0",
    "tests/kernels/test_attention_with.py::test_what_is_added_is_proved[sm_90a-names1",
    "tests/kernels/test_attention_with.py::test_wrong_sums_are_not_proved[(m0 + al.arange",
    "tests/kernels/test_packed.py::test_proved[many warps",
    "tests/kernels/test_packed.py::test_proved[producers, int8",
    "tests/kernels/test_packed.py::test_proved[small groups",
    "tests/kernels/test_packed.py::test_proved[wide",
    "tests/kernels/test_packed.py::test_proved_elsewhere[sm_80",
    # Gradients of a mixture's activations: one of them stays, and the proofs of the others.
    "tests/kernels/test_moe.py::test_gradients[cpu-clamped_swiglu",
    "tests/kernels/test_moe.py::test_gradients[cpu-geglu",
    # Kernels that ship: their proofs for a GPU stay where those for the host run nightly, other windows, forms and
    # types stay elsewhere.
    "tests/kernels/test_attention.py::test_proved[sm_90a-128-tiles3-False",
    "tests/kernels/test_attention_backward.py::test_windows[cpu-sizes1",
    "tests/kernels/test_attention_backward.py::test_windows_are_proved[sm_80-1-tiles1-keys",
    "tests/kernels/test_attention_backward.py::test_windows_are_proved[sm_90a",
    "tests/kernels/test_attention_backward.py::test_wrong_windows_are_not_proved[keys",
    "tests/kernels/test_backward.py::test_norms_are_proved[layernorm-sm_80",
    "tests/kernels/test_blockwise.py::test_wrong_twins_are_not_proved[quantized_blocks-al.max(blocks",
    "tests/kernels/test_cross_entropy.py::test_other_losses_are_refuted[part + (highest + chosen)]",
    "tests/kernels/test_gated_blocks.py::test_proved[gated",
    "tests/kernels/test_on_the_host.py::test_specified_and_proved[attention_added",
    "tests/kernels/test_on_the_host.py::test_specified_and_proved[attention_decode_",
    "tests/kernels/test_on_the_host.py::test_specified_and_proved[attention_forward",
    "tests/kernels/test_on_the_host.py::test_specified_and_proved[attention_packed",
    "tests/kernels/test_on_the_host.py::test_specified_and_proved[states_before",
    "tests/kernels/test_packed.py::test_proved[no zeros",
    "tests/kernels/test_topk.py::test_topk[cpu-shape0",
    "tests/layers/test_decoder.py::test_training[cpu-Qwen3 MoE",
    # As operators: what PyTorch's own checks, and descriptions, say of the same functions stays.
    "tests/torch/test_library.py::test_functions_are_operators[exported-attention_with",
    "tests/torch/test_library.py::test_functions_are_operators[exported-mixture_blocks",
    "tests/torch/test_library.py::test_functions_are_operators[traced with any sizes-attention_with",
    "tests/torch/test_library.py::test_functions_are_operators[traced with any sizes-mixture_blocks",
    "tests/torch/test_library.py::test_functions_are_operators[traced-attention_with",
    "tests/torch/test_library.py::test_functions_are_operators[traced-mixture_blocks",
    # Messages of examples, repairs and decompositions that take the longest: those of the other kernels stay.
    "tests/agents/test_text_repairs.py::test_a_form_repairs[a sum over all axes",
    "tests/graph/test_decompose.py::test_parts_are_proved[variance",
    "tests/test_messages.py::test_message[gathered_matmul",
    "tests/test_messages.py::test_message[gemm_hopper",
    "tests/test_messages.py::test_message[gemm_pingpong",
    # Wrong kernels of which shorter ones with the same mistake stay.
    "tests/passes/test_addresses.py::test_a_producer_that_loads_another_place_is_refuted[0",
    "tests/passes/test_apart.py::test_simulated[1-72",
    "tests/verify/test_softmax.py::test_rejected[another value",
    "tests/verify/test_softmax.py::test_rejected[the mask lets one less through",
    "tests/verify/test_twins.py::test_rejected[gemm-10-data-race",
    # Windows of attention: the wrong window of its gradients stays, and the proofs of right ones.
    "tests/kernels/test_attention_with.py::test_wrong_windows_are_not_proved[WINDOW and first",
    "tests/kernels/test_attention_with.py::test_proved[sm_80-constants6",
    # A mixture of one token, and boxes of convolutions: more tokens and other boxes stay.
    "tests/kernels/test_mixture_blocks.py::test_layer[cpu-1",
    "tests/graph/test_windows.py::test_convolution_without_strides_reads_boxes[part of a row of channels",
)
