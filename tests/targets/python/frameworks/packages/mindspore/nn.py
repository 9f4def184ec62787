# SPDX-License-Identifier: MulanPSL-2.0
from .tensors import Parameter, ParameterTuple, Tensor


class Cell:
    def __init__(self, auto_prefix=True):
        for name in ("_cells", "_params", "_params_list", "_buffers"):
            object.__setattr__(self, name, {})
        object.__setattr__(self, "_auto_prefix", auto_prefix)

    def __setattr__(self, name, value):
        if isinstance(value, Cell):
            self._cells[name] = value
        elif isinstance(value, Parameter):
            self._params[name] = value
            value.name = value.name if "." in value.name else name
        elif isinstance(value, ParameterTuple):
            self._params.update({p.name: p for p in value})
        object.__setattr__(self, name, value)

    def __call__(self, *args):
        return self.construct(*args)

    def parameters_and_names(self, prefix=""):
        for name, p in self._params.items():
            yield prefix + name, p
        for name, cell in self._cells.items():
            yield from cell.parameters_and_names(f"{prefix}{name}.")


class CellList(Cell):
    def __init__(self, cells):
        super().__init__()
        for i, cell in enumerate(cells):
            self._cells[str(i)] = cell

    def __len__(self):
        return len(self._cells)


class Dense(Cell):
    def __init__(self, n, m):
        super().__init__()
        self.weight, self.bias = Parameter(4 * n * m), Parameter(4 * m)

    def construct(self, x):
        return x


class Optimizer(Cell):
    def __init__(self, parameters):
        super().__init__()
        self.parameters = ParameterTuple(parameters)
        self.global_step = Parameter(4)


class Adam(Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters)
        self.moment1, self.moment2 = self.parameters.clone("moment1"), self.parameters.clone("moment2")

    def construct(self, gradients):
        return True


class WithLossCell(Cell):
    def __init__(self, backbone, loss_fn):
        super().__init__(auto_prefix=False)
        self._backbone, self._loss_fn = backbone, loss_fn

    def construct(self, x):
        return self._loss_fn(self._backbone(x))


class MSELoss(Cell):
    def construct(self, x):
        return x


class TrainOneStepCell(Cell):
    """Its gradients are there until the next ones are."""

    def __init__(self, network, optimizer):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer = network, optimizer

    def construct(self, x):
        self.network(x)
        object.__setattr__(self, "found", tuple(Tensor(p.nbytes) for p in self.optimizer.parameters))
        return self.optimizer(self.found)
