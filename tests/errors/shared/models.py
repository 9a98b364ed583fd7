from torch import nn


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.query = nn.Linear(8, width)
        self.value = nn.Linear(width, 4)

    def forward(self, x):
        return self.value(self.query(x).relu())


def make():
    return Net()


def wide():
    return Net(32)


def broken():
    raise RuntimeError("no weights here")


def three():
    return 3


def bare():
    return nn.Sequential(nn.ReLU())


def nan():
    model = Net()
    model.query.weight.data[0, 0] = float("nan")
    return model


number, ready = 3, Net()
