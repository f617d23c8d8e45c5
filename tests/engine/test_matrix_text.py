"""Text to matrix and back: what people paste is read, all else refused with its place, nothing evaluated."""

import math
import random
import time

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from attnlab.engine import (
    MatrixError,
    format_matrices,
    format_matrix,
    format_number,
    parse_matrices,
    parse_matrix,
    parse_number,
    require_in_range,
)
from helpers.annotations import unchecked
from helpers.refusals import refused

M = [[1.0, 0.5], [0.0, -1.0]]
MINUS = "\N{MINUS SIGN}"


def normal(rows: int, columns: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(rows * 100 + columns)
    return (
        (torch.randn(rows, columns, generator=generator, dtype=torch.float64) * 30).clamp(-100, 100).to(dtype)
    )


class TestWhatIsRead:
    @pytest.mark.parametrize(
        "text",
        [
            "1 0.5\n0 -1",
            "1 .5; 0 -1",
            "1,0.5;0,-1",
            "1, .5\r\n0, -1\r\n",
            "1\t0.5\n0\t-1",
            "1 \t 0.5\n0 \t -1\n",
            "\n\n  1   0.5 \n\n 0 -1  \n\n",
            "1, 0.5,\n0, -1,\n",
            "1. 5e-1\n-0.0 -1E0",
            "+1 +0.5; 0 -1;",
            f"1 0.5\n0 {MINUS}1",
            f"1 5e{MINUS}1\n0 -1",
            "1\u00a00.5\n0\u00a0-1",
            "[[1, 0.5], [0, -1]]",
            "[[1, 0.5], [0, -1]],",
            "[[1, 0.5],\n [0, -1],\n]",
            "[1, 0.5], [0, -1]",
            "[\n\t[1, 0.5],\n\t[0, -1],\n]",
            "[\n\t[\n\t\t1,\n\t\t0.5\n\t],\n\t[\n\t\t0,\n\t\t-1\n\t]\n]",
            "[1 0.5]\n[0 -1]",
            "[[1. 0.5]\n [0. -1.]]",
            "array([[1. , 0.5],\n       [0. , -1.]])",
            "np.array([[1, 0.5], [0, -1]], dtype=float)",
            "numpy.array([[1, 0.5], [0, -1]], dtype=np.float64)",
            "matrix([[1, 0.5], [0, -1]])",
            "tensor([[1.0, 0.5], [0, -1]])",
            "torch.tensor([[1.0, 0.5], [0, -1]], dtype=torch.float64)",
            "tensor([[1.0, 0.5], [0, -1]], requires_grad=True)",
            "tensor([[1.0, 0.5],\n        [0.0, -1.0]], dtype=torch.float64, grad_fn=<MmBackward0>)",
            "tensor([[1.0, 0.5], [0, -1]], device='cuda:0', dtype=torch.float64)",
            "\ttensor( [[1.0, 0.5], [0, -1]] ) ",
        ],
    )
    def test_one_matrix_in_many_spellings(self, text: str) -> None:
        matrix = parse_matrix(text)
        assert matrix.dtype == torch.float64
        assert matrix.tolist() == M

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("5", [[5]]),
            ("1 2 3", [[1, 2, 3]]),
            ("1\n2\n3", [[1], [2], [3]]),
            ("[1, 2]", [[1, 2]]),
            ("[[7]]", [[7]]),
            ("tensor(2.5)", [[2.5]]),
        ],
    )
    def test_rows_and_columns(self, text: str, expected: list[list[float]]) -> None:
        assert parse_matrix(text).tolist() == expected

    @pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (3, 4), (4, 16), (16, 16)])
    @pytest.mark.parametrize("show", [repr, str])
    def test_numpy_prints(self, shape: tuple[int, int], show) -> None:
        """Real output of NumPy, rows of 16 numbers broken over several lines included."""
        matrix = normal(*shape).round(decimals=3)
        with np.printoptions():
            text = show(matrix.numpy())
        assert ("\n" in text) is (shape[0] > 1)
        assert torch.equal(parse_matrix(text), matrix)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8"])
    def test_numpy_prints_other_dtypes(self, dtype: str) -> None:
        array = np.array([[1, 2, -3], [40, 0, 6]], dtype=dtype)
        assert parse_matrix(repr(array)).tolist() == array.tolist()

    def test_a_row_of_numpy_over_several_lines(self) -> None:
        array = np.linspace(-1, 1, 16)[None].round(6)
        assert "\n" in repr(array)
        assert parse_matrix(repr(array)).tolist() == array.tolist()
        assert parse_matrix(str(array[0])).tolist() == array.tolist()

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64], ids=str)
    @pytest.mark.parametrize("shape", [(1, 1), (3, 4), (16, 16)])
    def test_torch_prints(self, shape: tuple[int, int], dtype: torch.dtype) -> None:
        tensor = normal(*shape).to(dtype)
        read = parse_matrix(repr(tensor))
        torch.testing.assert_close(read, tensor.double(), rtol=1e-3, atol=6e-5)

    def test_torch_prints_powers_of_ten(self) -> None:
        tensor = torch.tensor([[1e-6, 50.0]], dtype=torch.float64)
        assert "e" in repr(tensor).partition("dtype")[0]
        torch.testing.assert_close(parse_matrix(repr(tensor)), tensor, rtol=1e-4, atol=0)

    def test_torch_prints_weights_that_learn(self) -> None:
        weight = torch.ones(2, 3, requires_grad=True)
        for tensor in (weight, weight * 2, weight @ torch.ones(3, 3).double().float()):
            assert "grad" in repr(tensor)
            assert torch.equal(parse_matrix(repr(tensor)), tensor.detach().double())

    def test_python_prints(self) -> None:
        matrix = normal(4, 3)
        assert torch.equal(parse_matrix(repr(matrix.tolist())), matrix)
        assert torch.equal(parse_matrix("\n".join(map(repr, matrix.tolist()))), matrix)

    def test_spreadsheet(self) -> None:
        matrix = normal(5, 4)
        copied = "".join("\t".join(map(str, row)) + "\r\n" for row in matrix.tolist())
        assert torch.equal(parse_matrix(copied), matrix)

    def test_limits_themselves_are_inside(self) -> None:
        matrix = parse_matrix("100 -100; 1e2 -0.01e+4")
        assert matrix.tolist() == [[100, -100], [100, -100]]
        assert parse_matrix("\n".join(["1 " * 16] * 16)).shape == (16, 16)

    def test_other_limits(self) -> None:
        assert parse_matrix("1000 -1000", limit=1000).tolist() == [[1000, -1000]]
        matrix = normal(64, 32)
        text = format_matrix(matrix)
        assert torch.equal(parse_matrix(text, max_rows=64, max_columns=32), matrix)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("text", "words", "row", "column"),
        [
            ("", ("K is empty", "at least one row"), None, None),
            (" \n\t ; \n", ("K is empty",), None, None),
            ("[]", ("K is empty",), None, None),
            ("[[]]", ("K is empty",), None, None),
            ("array([])", ("K is empty",), None, None),
            ("1 2; 3", ("K row 2 has 1 number;", "row 1 has 2"), 1, None),
            ("1 2; 3 4 5; 6 7", ("K row 2 has 3 numbers;", "rows 1 and 3 have 2"), 1, None),
            ("1 2; 3 4; 5 6; 7 8 9", ("K row 4 has 3 numbers;", "rows 1, 2 and 3 have 2"), 3, None),
            ("1; 2 3; 4 5", ("K row 1 has 1 number;", "rows 2 and 3 have 2"), 0, None),
            ("[[1, 2], [3]]", ("K row 2 has 1 number;", "row 1 has 2"), 1, None),
            ("1 2\n3 x", ("K row 2, column 2", "−100 to 100", "got 'x'"), 1, 1),
            ("nan", ("K row 1, column 1", "−100 to 100", "got 'nan'"), 0, 0),
            ("1 2; 3 inf", ("K row 2, column 2", "got 'inf'"), 1, 1),
            ("-inf", ("got '-inf'",), 0, 0),
            (f"{MINUS}∞", (f"got '{MINUS}∞'",), 0, 0),
            ("1e400", ("K row 1, column 1", "−100 to 100", "got '1e400'"), 0, 0),
            ("-1e400", ("got '-1e400'",), 0, 0),
            ("1 100.00000000000001", ("K row 1, column 2", "got '100.00000000000001'"), 0, 1),
            ("-101", ("got '-101'",), 0, 0),
            (
                "7" * 10_000,
                ("K row 1, column 1", "−100 to 100", "'777777777777'…", "10,000 characters"),
                0,
                0,
            ),
            ("0." + "3" * 9_998, ("10,000 characters",), 0, 0),
            ("1,,2", ("K row 1, column 2 is empty",), 0, 1),
            (",1", ("K row 1, column 1 is empty",), 0, 0),
            ("[[1,,2]]", ("K row 1, column 2 is empty",), 0, 1),
            ("[[],[1]]", ("K row 1, column 1 is empty",), 0, 0),
            ("1\t\t2", ("K row 1, column 2 is empty",), 0, 1),
            ("\t2\n3\t4", ("K row 1, column 1 is empty",), 0, 0),
            ("\t2", ("K row 1, column 1 is empty",), 0, 0),
            ("1\n\t2", ("K row 2, column 1 is empty",), 1, 0),
            ("1\t2\n3\t\n5\t6", ("K row 2, column 2 is empty",), 1, 1),
            ("1\t2\n\t\n5\t6", ("K row 2, column 1 is empty",), 1, 0),
            ("1\t2\t", ("K row 1, column 3 is empty",), 0, 2),
            ("\n".join(["1"] * 17), ("K", "1 to 16 rows", "1 to 16 columns", "got 17 × 1"), None, None),
            ("1 " * 17, ("K", "got 1 × 17"), None, None),
            ("1 " * 50_000, ("K", "at most 16 rows of 16 numbers", "100,000 characters"), None, None),
            ("[[1, 2], [3, 4]", ("K", "rows in brackets like [[1, 0], [0, 1]]"), None, None),
            ("[1, 2]]", ("K", "brackets"), None, None),
            ("][", ("K", "brackets"), None, None),
            ("[[[1, 2], [3, 4]]]", ("K", "brackets"), None, None),
            ("[[1, 2], 3]", ("K", "brackets"), None, None),
            ("x = [[1, 2]]", ("K", "brackets"), None, None),
            ("array([[1, 2]]); array([[3, 4]])", ("K", ""), None, None),
            ("array([[1, 2]]", ("K", "brackets"), None, None),
            ("array([[1, 2]], dtype=__import__('os'))", ("K",), None, None),
            ("[[1]] * 3", ("K", "brackets"), None, None),
        ],
    )
    def test_place_and_reason(
        self, text: str, words: tuple[str, ...], row: int | None, column: int | None
    ) -> None:
        with refused(*words, error=MatrixError) as caught:
            parse_matrix(text, name="K")
        assert (caught.value.row, caught.value.column) == (row, column)
        assert str(caught.value).startswith("K")
        assert len(str(caught.value)) < 200

    @pytest.mark.parametrize(
        "cell",
        [
            "1_0",
            "0x10",
            "1e",
            "e5",
            ".",
            "-",
            "+-1",
            "--1",
            "1.2.3",
            "1j",
            "1/2",
            "2**3",
            "1e5.0",
            "True",
            "None",
            "½",
            "٣",
            "１",
            "1\x00",
            "$5",
            "50%",
            "(1)",
            "1'",
            "π",
            "1e1e1",
        ],
    )
    def test_a_cell_that_is_no_decimal_number(self, cell: str) -> None:
        with refused("W row 1, column 2", repr(cell), error=MatrixError):
            parse_matrix(f"1 {cell}", name="W")
        with refused("p:", repr(cell), error=MatrixError):
            parse_number(cell, name="p")

    @pytest.mark.parametrize(
        "code",
        [
            "__import__('os').system('touch {path}')",
            "open('{path}','w')",
            "[[__import__('pathlib').Path('{path}').touch()]]",
            "np.array(open('{path}','w'))",
            "tensor([[1.0]], dtype=open('{path}','w'))",
            "${{touch {path}}}",
        ],
    )
    def test_nothing_is_evaluated(self, code: str, tmp_path) -> None:
        path = tmp_path / "made"
        with refused(error=MatrixError):
            parse_matrix(code.format(path=path))
        assert not path.exists()

    def test_a_message_is_a_value_error(self) -> None:
        assert issubclass(MatrixError, ValueError)
        assert (MatrixError("m").row, MatrixError("m").column) == (None, None)

    @pytest.mark.parametrize(
        ("limit", "words"), [(1.0, ("−1 to 1", "got '1.5'")), (0.5, ("−0.5 to 0.5", "got '1.5'"))]
    )
    def test_the_limit_is_in_the_message(self, limit: float, words: tuple[str, ...]) -> None:
        with refused(*words, error=MatrixError):
            parse_matrix("1.5", limit=limit)
        with refused(*words, error=MatrixError):
            parse_number("1.5", limit=limit)
        with refused("1 to 2 rows and 1 to 3 columns, got 3 × 1", error=MatrixError):
            parse_matrix("1;1;1", max_rows=2, max_columns=3)


class TestParseNumber:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1", 1),
            (" -2.5\n", -2.5),
            (f"{MINUS}3", -3),
            ("+.5", 0.5),
            ("5.", 5),
            ("1e2", 100),
            ("00012", 12),
            ("1e-8", 1e-8),
        ],
    )
    def test_reads(self, text: str, expected: float) -> None:
        assert parse_number(text) == expected
        assert isinstance(parse_number(text), float)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", ("d_k is empty", "expected a number")),
            ("  ", ("d_k is empty",)),
            ("nan", ("d_k:", "−100 to 100", "'nan'")),
            ("1 2", ("d_k:", "'1 2'")),
            ("100.1", ("d_k:", "'100.1'")),
            ("1e400", ("d_k:", "'1e400'")),
            ("9" * 10_000, ("d_k:", "10,000 characters")),
        ],
    )
    def test_refuses(self, text: str, words: tuple[str, ...]) -> None:
        with refused(*words, error=MatrixError) as caught:
            parse_number(text, name="d_k")
        assert len(str(caught.value)) < 200

    @given(st.floats(-100, 100))
    @example(-0.0)
    @example(5e-324)
    @example(0.1 + 0.2)
    def test_undoes_format_number(self, number: float) -> None:
        back = parse_number(format_number(number))
        assert back.hex() == number.hex()

    @given(st.text(max_size=12) | st.from_regex(r"[-+−]?[0-9.eE_]{0,9}", fullmatch=True))
    def test_reads_what_python_reads_or_refuses(self, text: str) -> None:
        try:
            number = parse_number(text)
        except MatrixError:
            return
        assert number == float(text.replace(MINUS, "-"))
        assert abs(number) <= 100


class TestFormat:
    @pytest.mark.parametrize(
        ("number", "text"),
        [
            (1.0, "1"),
            (-2.0, "-2"),
            (0.0, "0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e-8, "1e-08"),
            (1e20, "1e+20"),
            (math.inf, "inf"),
            (math.nan, "nan"),
            (7.77, "7.77"),
        ],
    )
    def test_shortest(self, number: float, text: str) -> None:
        assert format_number(number) == text

    @given(
        st.integers(1, 16).flatmap(
            lambda columns: st.lists(
                st.lists(st.floats(-100, 100), min_size=columns, max_size=columns), min_size=1, max_size=16
            )
        ),
        st.sampled_from(["\n", ";", "; ", "\r\n"]),
        st.sampled_from([" ", "\t", ",", ", ", "  "]),
    )
    def test_parse_undoes_format_bit_for_bit(
        self, rows: list[list[float]], row_separator: str, separator: str
    ) -> None:
        matrix = torch.tensor(rows, dtype=torch.float64)
        back = parse_matrix(format_matrix(matrix, row_separator=row_separator, separator=separator))
        assert torch.equal(back.view(torch.int64), matrix.view(torch.int64))

    def test_the_longest_numbers_fit(self) -> None:
        longest = torch.full((16, 16), -2.2250738585072014e-308, dtype=torch.float64)
        assert torch.equal(parse_matrix(format_matrix(longest, separator=",  ")), longest)


class TestRequireInRange:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
    @pytest.mark.parametrize("shape", [(1, 1), (3, 2), (16, 16)])
    def test_accepts(self, shape: tuple[int, int], dtype: torch.dtype) -> None:
        matrix = torch.full(shape, -100.0, dtype=dtype)
        before = matrix.clone()
        require_in_range(matrix)
        assert torch.equal(matrix, before)

    @pytest.mark.parametrize(
        ("bad", "shown"),
        [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (100.5, "100.5"), (-1e300, "-1e+300")],
    )
    def test_a_number_outside(self, bad: float, shown: str) -> None:
        matrix = torch.zeros(3, 2, dtype=torch.float64)
        matrix[1, 0] = matrix[2, 1] = bad
        with refused("V row 2, column 1:", "−100 to 100", f"got {shown}", error=MatrixError) as caught:
            require_in_range(matrix, name="V")
        assert (caught.value.row, caught.value.column) == (1, 0)

    @pytest.mark.parametrize(
        ("shape", "words"),
        [
            ((17, 1), ("Q:", "1 to 16 rows", "got 17 × 1")),
            ((1, 17), ("Q:", "1 to 16 columns", "got 1 × 17")),
            ((0, 3), ("Q:", "got 0 × 3")),
            ((3, 0), ("Q:", "got 3 × 0")),
            ((3,), ("Q:", "rows and columns", "1 axes")),
            ((1, 2, 3), ("Q:", "rows and columns", "3 axes")),
        ],
        ids=str,
    )
    def test_a_shape_outside(self, shape: tuple[int, ...], words: tuple[str, ...]) -> None:
        with refused(*words, error=MatrixError):
            require_in_range(torch.zeros(shape), name="Q")

    def test_what_is_parsed_is_in_range(self) -> None:
        require_in_range(parse_matrix("100 -100; 0 1e-300"))

    def test_weights_that_learn(self) -> None:
        with refused("row 1, column 1", "got 200", error=MatrixError):
            require_in_range(torch.full((1, 1), 200.0, requires_grad=True))


# What the grammar is made of, so that random texts come near to being matrices.
PIECES = st.sampled_from(
    [
        "1",
        "-2.5",
        "1e400",
        "nan",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        ";",
        ",",
        "[",
        "]",
        "[[",
        "]]",
        "(",
        ")",
        "array(",
        "tensor(",
        "np.",
        ", dtype=",
        "float",
        MINUS,
        "x",
        "\u2028",
        "\x00",
        "1" * 50,
    ]
)


class TestAnyText:
    """Any text is a matrix within the limits or a MatrixError, and soon."""

    def read(self, text: str) -> None:
        with unchecked():
            try:
                matrix = parse_matrix(text, name="Q")
            except MatrixError as error:
                refusal: str | None = str(error)
            else:
                refusal = None
        if refusal is not None:
            assert refusal.startswith("Q")
            assert len(refusal) < 400
            return
        assert matrix.dtype == torch.float64
        assert matrix.ndim == 2
        assert all(1 <= size <= 16 for size in matrix.shape)
        assert (matrix.abs() <= 100).all()

    @given(st.text(max_size=60))
    def test_of_any_characters(self, text: str) -> None:
        self.read(text)

    @given(st.lists(PIECES, max_size=25).map("".join))
    def test_of_the_grammars_own_pieces(self, text: str) -> None:
        self.read(text)

    @pytest.mark.parametrize("seed", range(5))
    def test_of_long_runs(self, seed: int) -> None:
        chooser = random.Random(seed)
        pieces = [" ", "[", "]", ",", "\n", "\t", ";", "1", "x", "array(", ")", ", dtype="]
        for _ in range(30):
            runs = [chooser.choice(pieces) * chooser.randint(1, 1500) for _ in range(chooser.randint(1, 8))]
            self.read("".join(runs)[:12_288])

    @pytest.mark.parametrize(
        "text",
        [
            "1" + " " * 12_286 + "1",
            "1," + " " * 12_285 + "1",
            "1" + "\u00a0" * 12_286 + "1",
            "[[]" + " " * 12_284 + "x",
            "[[1]" + " " * 6_000 + "," + " " * 6_000 + "x",
            "[" * 12_288,
            "]" * 12_288,
            "[]" * 6_144,
            "[[" + "] " * 6_000 + "x",
            "[[" + "],  " * 3_000 + "x",
            ", " * 6_144,
            "array(" + ")" * 12_000 + "x",
            "array(" + ") " * 6_000 + "x",
            "array(" + ", dtype=" * 1_500 + ")",
            "array(1" + ", dtype=a" * 1_350 + "[)",
            "array(1, dtype=" + "a" * 6_000 + " " * 6_000 + "!)",
            "\t" * 12_287 + "1",
            "1" + "\n;\r" * 4_095 + "1",
            "1e" * 6_144,
        ],
        ids=lambda text: f"{text[:12]!r}… {len(text)}",
    )
    def test_of_runs_that_make_a_regex_go_back(self, text: str) -> None:
        # CPU time, so that a busy machine is no failure; quadratic reading took 0.3 s and more, this 0.01 s.
        start = time.process_time()
        self.read(text)
        assert time.process_time() - start < 0.2


@pytest.mark.parametrize("text", ["1e-400", "-0.5e-999", "0.0001e-350"])
def test_a_number_too_small_to_hold_does_not_become_zero(text):
    with pytest.raises(MatrixError, match="float64 can hold"):
        parse_number(text, name="Q")


@pytest.mark.parametrize("text", ["0", "0e-400", "-0.0", "5e-324"])
def test_zero_and_the_smallest_number_are_read(text):
    assert parse_number(text) == float(text)


class TestMatrices:
    """Several matrices in one text."""

    @pytest.mark.parametrize(
        "text",
        [
            "1 2; 3 4;; 5 6; 7 8",
            "1 2; 3 4; ;5 6; 7 8",
            "1 2\n3 4\n\n5 6\n7 8\n",
            "\n\n1 2\n3 4\n   \n\n\n5 6\n7 8\n\n",
            "1\t2\r\n3\t4\r\n\r\n5\t6\r\n7\t8\r\n",
            "[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]",
            "tensor([[[1., 2.],\n         [3., 4.]],\n\n        [[5., 6.],\n         [7., 8.]]])",
            "[[[1 2]\n  [3 4]]\n\n [[5 6]\n  [7 8]]]",
        ],
    )
    def test_spellings(self, text: str) -> None:
        assert parse_matrices(text).tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]

    @pytest.mark.parametrize("text", ["1 2; 3 4", "[[1, 2], [3, 4]]", "[[[1, 2], [3, 4]]]", "1 2\n3 4\n\n"])
    def test_a_single_one(self, text: str) -> None:
        assert parse_matrices(text).tolist() == [[[1, 2], [3, 4]]]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "X is empty: expected at least one row of numbers"),
            (" ;; ;; ", "X is empty: expected at least one row of numbers"),
            ("1;;2;;3;;4", "X: expected at most 3 × sequence, got 4"),
            ("1 2;;3", "X sequence 2: expected 1 × 2 numbers as in sequence 1, got 1 × 1"),
            ("1 2;;3 4;5 6", "X sequence 2: expected 1 × 2 numbers as in sequence 1, got 2 × 2"),
            ("1 2;;3 x", "X sequence 2 row 1, column 2: expected a number from −100 to 100, got 'x'"),
            ("1;;2;3;4", "X sequence 2: expected 1 to 2 rows and 1 to 2 columns, got 3 × 1"),
            ("1 nan", "X row 1, column 2: expected a number from −100 to 100, got 'nan'"),
            ("[[[1, 2], [3, 4]], [5, 6]]", "X: expected rows in brackets like [[1, 0], [0, 1]]"),
            ("[[[1, 2]], [[[3, 4]]]]", "brackets that do not pair up"),
            ("1" * 40_000, "X: expected at most 3 × 2 × 2 numbers, got 40,000 characters of text"),
        ],
    )
    def test_refused(self, text: str, words: str) -> None:
        with pytest.raises(MatrixError) as caught:
            parse_matrices(text, name="X", part="sequence", max_matrices=3, max_rows=2, max_columns=2)
        assert words in str(caught.value)

    @given(
        st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["\n", ";"]), st.randoms()
    )
    def test_parse_undoes_format_bit_for_bit(
        self, count: int, rows: int, columns: int, row_separator: str, random: random.Random
    ) -> None:
        numbers = [random.uniform(-100, 100) for _ in range(count * rows * columns)]
        matrices = torch.tensor(numbers, dtype=torch.float64).reshape(count, rows, columns)
        back = parse_matrices(format_matrices(matrices, row_separator=row_separator))
        assert torch.equal(back.view(torch.int64), matrices.view(torch.int64))

    @given(st.lists(PIECES, max_size=25).map("".join))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            matrices = parse_matrices(text)
        except MatrixError:
            return
        assert matrices.ndim == 3
        assert matrices.isfinite().all()


def test_more_brackets_than_rows_are_refused_before_they_are_read() -> None:
    for text in ("[]" * 6000, "[" * 6000):
        with refused("matrix: expected at most 16 rows in brackets, got 6,000 brackets", error=MatrixError):
            parse_matrix(text)
    with refused("matrix: expected at most 16 × 16 rows in brackets, got 6,000 brackets", error=MatrixError):
        parse_matrices("[]" * 6000)
    assert parse_matrix(str([[0]] * 16)).shape == (16, 1)
    assert parse_matrices(str([[[0]] * 16] * 16)).shape == (16, 16, 1)
