"""Makes tests/fixtures/operators: small models of what the tract engine gets operators of its own for,
with the answers of ONNX Runtime to three inputs each.

Run from the repository's root, with onnx, onnxruntime and numpy: python tests/operators/golden.py
"""

import json
import pathlib
import zipfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

HERE = pathlib.Path(__file__).parent.parent / "fixtures" / "operators"
F, I, B = T.FLOAT, T.INT64, T.BOOL
STAMP = (2020, 1, 1, 0, 0, 0)
groups = {}


def tensor(array):
    values = (array.astype(int) if array.dtype == bool else array).ravel().tolist()
    if array.dtype == np.float32:
        values = [float(f"{value:.8g}") for value in values]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": values}


def keep(group, name, model, feeds):
    """Runs a model and keeps it with what it was given and gave. Models that do not run stop the script."""
    options = ort.SessionOptions()
    if group == "narrow":
        # The optimiser replaces products of few bits by ones that round what they are multiplied with.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    names = [value.name for value in session.get_inputs()]
    runs = []
    for feed in feeds:
        feed = {key: np.asarray(value) for key, value in feed.items()}
        answers = session.run(None, feed)
        runs.append(
            {
                "inputs": [tensor(feed[key]) for key in names],
                "outputs": [tensor(answer) for answer in answers],
            }
        )
    groups.setdefault(group, []).append((name, model.SerializeToString(), runs))


def write():
    for group, cases in groups.items():
        with zipfile.ZipFile(HERE / f"{group}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
            for name, model, runs in cases:
                out.writestr(zipfile.ZipInfo(f"{name}.onnx", STAMP), model, zipfile.ZIP_DEFLATED, 9)
                text = json.dumps(runs, separators=(",", ":"), allow_nan=False)
                out.writestr(zipfile.ZipInfo(f"{name}.json", STAMP), text, zipfile.ZIP_DEFLATED, 9)


STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 2, 3
LENGTHS = [[4, 3], [1, 4], [2, 0]]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrence(operator, seed, direction, *, bias=True, lengths=False, states=False, outputs=(1, 1, 1),
               stored=True, dynamic=False, **attributes):
    """A model of one recurrent operator."""
    rng = np.random.default_rng(seed)
    directions = 2 if direction == "bidirectional" else 1
    rows = GATES[operator] * HIDDEN

    def numbers(*shape):
        return rng.uniform(-1, 1, shape).astype(np.float32).round(4)

    stores = {"W": numbers(directions, rows, INPUTS), "R": numbers(directions, rows, HIDDEN)}
    sizes = ["steps", "batch", INPUTS] if dynamic else [STEPS, BATCH, INPUTS]
    given = [h.make_tensor_value_info("X", F, sizes)]
    names = ["X", "W", "R", "", "", "", "", ""]
    if not stored:
        given.append(h.make_tensor_value_info("R", F, list(stores.pop("R").shape)))
    if bias:
        names[3], stores["B"] = "B", numbers(directions, 2 * rows)
    if lengths:
        names[4] = "lengths"
        given.append(h.make_tensor_value_info("lengths", T.INT32, [BATCH]))
    if states:
        state = [directions, BATCH, HIDDEN]
        names[5] = "hidden"
        given.append(h.make_tensor_value_info("hidden", F, state))
        if operator == "LSTM":
            names[6] = "memory"
            given.append(h.make_tensor_value_info("memory", F, state))
            names[7], stores["P"] = "P", numbers(directions, 3 * HIDDEN)
    all_outputs = ["Y", "Y_h", "Y_c"][: 3 if operator == "LSTM" else 2]
    made = [name if wanted else "" for name, wanted in zip(all_outputs, outputs)]
    for some in (names, made):
        while some[-1] == "":
            some.pop()
    node = h.make_node(operator, names, made, hidden_size=HIDDEN, direction=direction, **attributes)
    values = [h.make_tensor_value_info(name, F, [None] * (4 if name == "Y" else 3)) for name in made if name]
    graph = h.make_graph([node], "g", given, values, [nh.from_array(v, k) for k, v in stores.items()])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 14)])
    model.ir_version = 8
    feeds = []
    for run in range(3):
        feed = {}
        for value in given:
            shape = [d.dim_value or {"steps": STEPS + run, "batch": BATCH}[d.dim_param]
                     for d in value.type.tensor_type.shape.dim]
            feed[value.name] = (rng.uniform(-2, 2, shape).astype(np.float32).round(3)
                                if value.name != "lengths" else np.array(LENGTHS[run], np.int32))
        feeds.append(feed)
    return model, feeds


def recurrences():
    cases = []
    for operator in GATES:
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[operator]
        for direction in ["forward", "reverse", "bidirectional"]:
            def add(name, **options):
                cases.append((operator, f"{direction}-{name}", direction, options))
            add("plain")
            add("lengths", lengths=True)
            add("states", states=True)
            add("both", lengths=True, states=True)
            add("clip", clip=0.3)
            add("no-bias", bias=False, outputs=(0, 1, 1))
            add("given-weights", stored=False, outputs=(1, 0, 0))
            add("dynamic", dynamic=True)
            if operator == "GRU":
                add("linear", linear_before_reset=1)
                add("linear-both", linear_before_reset=1, lengths=True, states=True)
            if operator == "LSTM":
                add("input-forget", input_forget=1)
                add("input-forget-clip", input_forget=1, clip=0.5, lengths=True)
        for activation in ["Relu", "Tanh", "Sigmoid", "Softsign", "Softplus"]:
            activations = [activation] * count
            if (operator, activation) == ("GRU", "Softplus"):
                # As the gates of a GRU it grows until ONNX Runtime's overflows.
                activations[0] = "Sigmoid"
            cases.append((operator, activation, "forward", {"activations": activations}))
        for activation in ["Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"]:
            options = {"activations": [activation] * count, "activation_alpha": [0.3, 0.4, 0.5][:count]}
            if activation in ["Affine", "ScaledTanh", "HardSigmoid"]:
                options["activation_beta"] = [0.2, 0.6, 0.7][:count]
            cases.append((operator, f"{activation}-parameters", "forward", options))
            if activation in ["LeakyRelu", "HardSigmoid", "Elu"]:
                options = {"activations": [activation] * count}
                cases.append((operator, activation, "reverse", options))
    mixed = ["HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "Affine", "Elu"]
    options = {"activations": mixed, "activation_alpha": [0.3, 0.1, 0.8, 0.5], "activation_beta": [0.4, 0.1]}
    cases.append(("LSTM", "mixed", "bidirectional", options))
    for seed, (operator, name, direction, options) in enumerate(cases):
        model, feeds = recurrence(operator, seed, direction, **options)
        keep(operator.lower(), name, model, feeds)


n = h.make_node
vi = h.make_tensor_value_info
r = np.random.default_rng(1)


def f32(*shape):
    return r.uniform(-1, 1, shape).astype(np.float32).round(4)


def save(name, nodes, ins, outs, feeds, init=(), opset=17, functions=(), domains=()):
    graph = h.make_graph(nodes, "g", ins, outs, [nh.from_array(np.asarray(v), k) for k, v in init])
    imports = [h.make_opsetid("", opset)] + [h.make_opsetid(domain, 1) for domain in domains]
    model = h.make_model(graph, opset_imports=imports, functions=list(functions))
    model.ir_version = 9
    keep("constructs", name, model, feeds)


def constructs():
    # If by data
    th=h.make_graph([n('Mul',['x','x'],['t'])],'t',[],[vi('t',F,None)])
    el=h.make_graph([n('Sub',['x','w'],['e'])],'e',[],[vi('e',F,None)])
    save('if-data',[n('ReduceSum',['x'],['s'],keepdims=0),n('Greater',['s','zero'],['c']),n('If',['c'],['y0'],then_branch=th,else_branch=el),n('Neg',['y0'],['y'])],[vi('x',F,['a',3])],[vi('y',F,None)],[dict(x=np.abs(f32(2,3))),dict(x=-np.abs(f32(2,3))),dict(x=np.abs(f32(4,3)))],init=[('zero',np.float32(0)),('w',f32(3))])
    # If by data, other shapes
    el2=h.make_graph([n('Concat',['x','x'],['e'],axis=0)],'e',[],[vi('e',F,None)])
    save('if-shapes',[n('ReduceSum',['x'],['s'],keepdims=0),n('Greater',['s','zero'],['c']),n('If',['c'],['y0'],then_branch=th,else_branch=el2),n('Relu',['y0'],['y1']),n('MatMul',['y1','w'],['y'])],[vi('x',F,['a',3])],[vi('y',F,None)],[dict(x=np.abs(f32(2,3))),dict(x=f32(2,3)-1.5),dict(x=np.abs(f32(4,3)))],init=[('zero',np.float32(0)),('w',f32(3,5))])
    # If by shape with impossible other branch
    sq=h.make_graph([n('Squeeze',['x','one'],['t'])],'t',[],[vi('t',F,None)])
    idn=h.make_graph([n('Identity',['x'],['e'])],'e',[],[vi('e',F,None)])
    save('if-squeeze',[n('Shape',['x'],['sh']),n('Gather',['sh','i1'],['d']),n('Equal',['d','i1'],['c']),n('If',['c'],['y0'],then_branch=sq,else_branch=idn),n('Neg',['y0'],['y'])],[vi('x',F,['a','b'])],[vi('y',F,None)],[dict(x=f32(2,1)),dict(x=f32(2,3)),dict(x=f32(5,1))],init=[('i1',np.int64(1)),('one',np.array([1]))])
    # If by an input's value, nested, two outputs
    inner=h.make_graph([n('Add',['x','x'],['p']),],'p',[],[vi('p',F,None)])
    inner2=h.make_graph([n('Mul',['x','k'],['q']),],'q',[],[vi('q',F,None)])
    t3=h.make_graph([n('Equal',['sr','k8'],['c2']),n('If',['c2'],['t1'],then_branch=inner,else_branch=inner2),n('Constant',[],['k'],value=h.make_tensor('k',F,[],[3.0])),n('Neg',['x'],['t2'])],'t3',[],[vi('t1',F,None),vi('t2',F,None)])
    t3.node.insert(0,t3.node[2]); del t3.node[3]
    e3=h.make_graph([n('Exp',['x'],['e1']),n('Abs',['x'],['e2'])],'e3',[],[vi('e1',F,None),vi('e2',F,None)])
    save('if-nested',[n('Greater',['sr','k0'],['c']),n('If',['c'],['a','b'],then_branch=t3,else_branch=e3)],[vi('x',F,[2,2]),vi('sr',I,[])],[vi('a',F,None),vi('b',F,None)],[dict(x=f32(2,2),sr=np.int64(8)),dict(x=f32(2,2),sr=np.int64(9)),dict(x=f32(2,2),sr=np.int64(-1))],init=[('k0',np.int64(0)),('k8',np.int64(8))])
    # Loop: sum of powers, collecting; data dependent end
    body=h.make_graph([n('Add',['v','x'],['v2']),n('ReduceSum',['v2'],['s'],keepdims=0),n('Less',['s','lim'],['co']),n('Mul',['v2','v2'],['sc'])],'b',[vi('i',I,[]),vi('ci',B,[]),vi('v',F,[None,2])],[vi('co',B,[]),vi('v2',F,[None,2]),vi('sc',F,[None,2])])
    save('loop',[n('Loop',['m','','x'],['f','all'],body=body)],[vi('x',F,['a',2]),vi('m',I,[])],[vi('f',F,None),vi('all',F,None)],[dict(x=np.abs(f32(2,2)),m=np.int64(5)),dict(x=f32(3,2),m=np.int64(2)),dict(x=f32(2,2),m=np.int64(7))],init=[('lim',np.float32(6))])
    # Loop: growing
    grow=h.make_graph([n('Identity',['ci'],['co']),n('Cast',['i'],['fi'],to=F),n('Unsqueeze',['fi','ax'],['fu']),n('Concat',['v','fu'],['v2'],axis=0)],'b',[vi('i',I,[]),vi('ci',B,[]),vi('v',F,[None])],[vi('co',B,[]),vi('v2',F,[None])])
    save('loop-grow',[n('Loop',['m','t','x'],['f'],body=grow),n('Neg',['f'],['y'])],[vi('x',F,['a']),vi('m',I,[])],[vi('y',F,None)],[dict(x=f32(2),m=np.int64(3)),dict(x=f32(2),m=np.int64(0)),dict(x=f32(3),m=np.int64(4))],init=[('t',np.bool_(True)),('ax',np.array([0]))])
    # GatherND / ScatterND negative
    save('gathernd',[n('GatherND',['x','i'],['y'])],[vi('x',F,[3,4,2]),vi('i',I,[2,2])],[vi('y',F,None)],[dict(x=f32(3,4,2),i=np.array([[-1,0],[2,-4]])),dict(x=f32(3,4,2),i=np.array([[0,-1],[-3,3]])),dict(x=f32(3,4,2),i=np.array([[1,1],[-2,-2]]))])
    save('gathernd-batch',[n('GatherND',['x','i'],['y'],batch_dims=1)],[vi('x',F,[1,4,2])],[vi('y',F,None)],[dict(x=f32(1,4,2)) for _ in range(3)],init=[('i',np.array([[-1]]))])
    save('gathernd-const',[n('GatherND',['x','i'],['y'])],[vi('x',F,['a',4,2])],[vi('y',F,None)],[dict(x=f32(2+k,4,2)) for k in range(3)],init=[('i',np.array([[-1,-2]]))])
    save('scatternd',[n('ScatterND',['x','i','u'],['y'])],[vi('x',F,[3,4]),vi('i',I,[2,2]),vi('u',F,[2])],[vi('y',F,None)],[dict(x=f32(3,4),u=f32(2),i=np.array([[-1,0],[2,-3]])),dict(x=f32(3,4),u=f32(2),i=np.array([[0,-1],[-3,2]])),dict(x=f32(3,4),u=f32(2),i=np.array([[1,1],[-2,-2]]))])
    save('scatternd-const',[n('ScatterND',['x','i','u'],['y'])],[vi('x',F,['a',4]),vi('u',F,[1,4])],[vi('y',F,None)],[dict(x=f32(2+k,4),u=f32(1,4)) for k in range(3)],init=[('i',np.array([[-1]]))])
    # Pad
    for mode in ['constant','reflect','edge']:
        save(f'pad-{mode}',[n('Pad',['x','p'],['y'],mode=mode)],[vi('x',F,['a',5,6])],[vi('y',F,None)],[dict(x=f32(2+k,5,6)) for k in range(3)],init=[('p',np.array([0,-1,2,0,2,-2]))])
    save('pad-value',[n('Pad',['x','p','v','axes'],['y'])],[vi('x',F,['a',5,6])],[vi('y',F,None)],[dict(x=f32(2+k,5,6)) for k in range(3)],init=[('p',np.array([-1,2,1,-3])),('v',np.float32(0.5)),('axes',np.array([-1,1]))],opset=18)
    save('pad-int',[n('Pad',['x','p'],['y'])],[vi('x',I,[3,3])],[vi('y',I,None)],[dict(x=r.integers(0,9,(3,3))) for k in range(3)],init=[('p',np.array([1,-1,-1,1]))])
    save('pad-given',[n('Pad',['x','p'],['y'])],[vi('x',F,[3,3]),vi('p',I,[4])],[vi('y',F,None)],[dict(x=f32(3,3),p=np.array(p)) for p in ([1,-1,-1,1],[0,0,1,1],[-1,-1,-1,0])])
    # OneHot
    save('onehot',[n('OneHot',['x','d','v'],['y'],axis=1)],[vi('x',I,['a',3]),vi('d',I,[])],[vi('y',F,None)],[dict(x=r.integers(-6,6,(2,3)),d=np.int64(d)) for d in (4,6,2)],init=[('v',np.array([-1,2],np.float32))])
    save('onehot-stored',[n('OneHot',['x','d','v'],['y'])],[vi('x',I,['a',3])],[vi('y',F,None)],[dict(x=r.integers(-6,6,(2+k,3))) for k in range(3)],init=[('v',np.array([-1,2],np.float32)),('d',np.array([5]))])
    # names twice
    save('names',[n('Mul',['x','w'],['a'],name='w'),n('Neg',['a'],['b'],name='a'),n('Abs',['b'],['y'],name='b')],[vi('x',F,[3])],[vi('y',F,None)],[dict(x=f32(3)) for _ in range(3)],init=[('w',f32(3))])
    # functions
    fn=h.make_function('own','Act',['a','b'],['c'],[h.make_node('LeakyRelu',['a'],['t']),h.make_node('Mul',['t','b'],['c'])],[h.make_opsetid('',17)],['slope'])
    at=fn.node[0].attribute.add(); at.name='alpha'; at.ref_attr_name='slope'; at.type=onnx.AttributeProto.FLOAT
    save('function',[n('Act',['x','w'],['y0'],domain='own',slope=0.3),n('Act',['y0','x'],['y'],domain='own',slope=0.1)],[vi('x',F,[3])],[vi('y',F,None)],[dict(x=f32(3)) for _ in range(3)],init=[('w',f32(3))],functions=[fn],domains=['own'])
    # Celu, Swish, quantisation type
    save('celu',[n('Celu',['x'],['y'],alpha=2.5)],[vi('x',F,['a'])],[vi('y',F,None)],[dict(x=f32(4+k)*4) for k in range(3)])
    # DynamicQuantizeLSTM
    for d in ['forward','reverse','bidirectional']:
      for per in (0,1):
        D=2 if d=='bidirectional' else 1; H=8; In=5
        W=r.integers(-127,127,(D,In,4*H)).astype(np.int8); R=r.integers(-127,127,(D,H,4*H)).astype(np.int8)
        sc=lambda: (r.uniform(.002,.01,(D,4*H) if per else (D,)).astype(np.float32))
        z=np.zeros((D,4*H) if per else (D,),np.int8)
        save(f'dqlstm-{d}-{per}',[n('DynamicQuantizeLSTM',['X','W','R','B','','','','','ws','wz','rs','rz'],['Y','Yh','Yc'],domain='com.microsoft',hidden_size=H,direction=d)],[vi('X',F,['t',1,In])],[vi(x,F,None) for x in('Y','Yh','Yc')],[dict(X=f32(4+k,1,In)) for k in range(3)],init=[('W',W),('R',R),('B',f32(D,8*H)),('ws',sc()),('wz',z),('rs',sc()),('rz',z)],domains=['com.microsoft'])


def fused():
    """Operators of ONNX Runtime that stand for several of the standard."""
    rng = np.random.default_rng(7)

    def numbers(*shape):
        return rng.uniform(-1, 1, shape).astype(np.float32)

    def save(name, operator, shapes, stored=(), **attributes):
        """The first tensors are inputs, the last ones are stored; shapes begin with a size that changes."""
        names = [f"x{at}" if shape else "" for at, shape in enumerate(shapes)]
        kept = [at for at, shape in enumerate(shapes) if shape and at in stored]
        given = [at for at, shape in enumerate(shapes) if shape and at not in stored]
        graph = h.make_graph(
            [h.make_node(operator, names, ["y"], domain="com.microsoft", **attributes)],
            "g",
            [h.make_tensor_value_info(names[at], F, shapes[at]) for at in given],
            [h.make_tensor_value_info("y", F, None)],
            [nh.from_array(numbers(*shapes[at]), names[at]) for at in kept],
        )
        imports = [h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)]
        model = h.make_model(graph, opset_imports=imports, ir_version=10)
        feeds = []
        for turn in range(3):
            sizes = {"n": 1 + turn}
            feeds.append({names[at]: numbers(*(sizes.get(size, size) for size in shapes[at])) for at in given})
        keep("fused", name, model, feeds)

    for left in (0, 1):
        for right in (0, 1):
            shapes = [["n", 4, 3] if left else ["n", 3, 4], [5, 4] if right else [4, 5]]
            save(f"matmul-{left}{right}", "FusedMatMul", shapes, stored=[1], transA=left, transB=right, alpha=0.125)
    save("matmul-plain", "FusedMatMul", [["n", 3, 4], ["n", 4, 5]])
    save("matmul-batches", "FusedMatMul", [["n", 2, 3, 4], ["n", 2, 5, 4]], transB=1, alpha=-3.0)
    save("matmul-flat", "FusedMatMul", [[3, "n"], [5, 3]], transA=1, transB=1)
    save("matmul-old", "TransposeMatMul", [["n", 4, 3], ["n", 4, 5]], transA=1)
    for name, more in (
        ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.3}),
        ("HardSigmoid", {"activation_alpha": 0.4, "activation_beta": 0.6}), ("Elu", {"activation_alpha": 1.5}),
    ):
        save(f"gemm-{name}", "FusedGemm", [["n", 4], [5, 4], [5]], stored=[1, 2], transB=1, alpha=1.5, beta=0.5, activation=name, **more)
    save("gemm-no-bias", "FusedGemm", [["n", 4], [4, 5]], activation="Relu")
    picture, kernel = ["n", 2, 6, 5], [4, 2, 3, 3]
    for name, parameters in (
        ("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("Clip", [-0.25, 0.5]), ("HardSigmoid", [0.3, 0.4]),
    ):
        more = {"activation_params": parameters} if parameters else {}
        save(f"conv-{name}", "FusedConv", [picture, kernel, [4]], stored=[1, 2], pads=[1, 1, 1, 1], strides=[2, 1], activation=name, **more)
    save("conv-sum", "FusedConv", [picture, kernel, [4], ["n", 4, 4, 3]], stored=[1, 2], activation="Relu")
    save("conv-sum-no-bias", "FusedConv", [picture, kernel, None, ["n", 4, 4, 3]], stored=[1])


def contributed():
    """Other operators of ONNX Runtime."""
    rng = np.random.default_rng(17)

    def numbers(*shape):
        return rng.uniform(-2, 2, shape).round(2).astype(np.float32)

    def save(name, operator, inputs, stored=(), output=F, outputs=("y",), **attributes):
        runs = [{key: make(turn) for key, make in inputs.items() if make} for turn in range(3)]
        types = {key: h.np_dtype_to_tensor_dtype(value.dtype) for key, value in runs[0].items()}
        kinds = {key: I if operator == "Unique" and key != "y" else output for key in outputs}
        graph = h.make_graph(
            [h.make_node(operator, [key if make else "" for key, make in inputs.items()], outputs,
                         domain="com.microsoft", **attributes)],
            "g",
            [h.make_tensor_value_info(key, types[key], [None] * value.ndim) for key, value in runs[0].items() if key not in stored],
            [h.make_tensor_value_info(key, kind, None) for key, kind in kinds.items() if key],
            [nh.from_array(runs[0][key], key) for key in stored],
        )
        imports = [h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)]
        model = h.make_model(graph, opset_imports=imports, ir_version=10)
        keep("contributed", name, model, [{key: value for key, value in run.items() if key not in stored} for run in runs])

    def sizes(shape, turn):
        return [turn + 1 if size == "n" else turn + 3 if size == "m" else size for size in shape]

    def of_bytes(kind, *shape):
        limits = np.iinfo(kind)
        return lambda turn: rng.integers(limits.min, limits.max, sizes(shape, turn)).astype(kind)

    def real(*shape):
        return lambda turn: numbers(*sizes(shape, turn))

    def below(most, *shape, kind=np.int64):
        return lambda turn: rng.integers(0, most, sizes(shape, turn)).astype(kind)

    def small(*shape):
        return lambda turn: rng.uniform(0.01, 0.1, shape).astype(np.float32)

    def fixed(value):
        return lambda turn: value

    for name, kind, columns in (("", np.int8, 1), ("-unsigned", np.uint8, 1), ("-columns", np.int8, 5)):
        weights = {"w": of_bytes(kind, 4, 5), "s": small(columns), "z": of_bytes(kind, columns), "b": real(5)}
        save(f"dynamic{name}", "DynamicQuantizeMatMul", {"x": real("n", 3, 4), **weights}, list(weights))
        inputs = {"x": of_bytes(np.uint8, "n", 3, 4), "w": weights["w"], "xs": small(1), "s": weights["s"],
                  "xz": of_bytes(np.uint8, 1), "z": weights["z"], "b": real(5)}
        save(f"to-float{name}", "MatMulIntegerToFloat", inputs, list(inputs)[1:])
    save("dynamic-plain", "DynamicQuantizeMatMul", {"x": real("n", 3, 4), "w": of_bytes(np.int8, 4, 5), "s": small(1)}, ["w", "s"])
    tables = {"w": real(9, 4), "p": real(8, 4), "st": real(2, 4), "g": real(4), "b": real(4)}
    tokens, segments = below(9, 2, "m", kind=np.int32), below(2, 2, "m", kind=np.int32)
    save("embedding", "EmbedLayerNormalization", {"i": tokens, "sg": segments, **tables}, list(tables), outputs=["y", ""])
    placed = {"i": tokens, "sg": None, **tables, "st": None, "m": None,
              "at": lambda turn: np.array([range(3 + turn)] * 2, np.int32) + 1}
    save("embedding-placed", "EmbedLayerNormalization", placed, ["w", "p", "g", "b"], outputs=["y", "", "sum"], epsilon=0.01)
    grids = {"as": fixed(np.float32(0.1)), "az": fixed(np.uint8(7)), "b": of_bytes(np.uint8, "n", 4), "bs": fixed(np.float32(0.3)),
             "bz": fixed(np.uint8(100)), "ys": fixed(np.float32(0.2)), "yz": fixed(np.uint8(50))}
    where = {"c": lambda turn: rng.integers(0, 2, (turn + 1, 4)).astype(bool), "a": of_bytes(np.uint8, "n", 4), **grids}
    save("where", "QLinearWhere", where, [key for key in grids if key != "b"], T.UINT8)
    save("largest", "NhwcMaxPool", {"x": of_bytes(np.uint8, "n", 5, 6, 3)}, (), T.UINT8,
         kernel_shape=[2, 3], strides=[1, 2], pads=[0, 1, 1, 0])
    save("expanded", "ExpandDims", {"x": real("n", 3), "a": fixed(np.array(1, np.int32))}, ["a"])
    save("gathered", "GatherND", {"x": real("n", 3), "a": fixed(np.array([[0, 1], [0, 2]], np.int64))}, ["a"])
    save("sampled", "GridSample", {"x": real("n", 2, 4, 4), "g": lambda turn: numbers(turn + 1, 3, 2, 2) / 2}, align_corners=1)
    save("padded", "Pad", {"x": real("n", 3), "a": fixed(np.array([1, 0, 0, 2], np.int64)), "v": fixed(np.array([0.5], np.float32))}, ["a", "v"])
    save("triangle", "Trilu", {"x": real("n", 3, 3), "k": fixed(np.array(1, np.int64))}, ["k"], upper=0)
    save("different", "Unique", {"x": lambda turn: rng.integers(-2, 3, 6 + turn).astype(np.float32)}, outputs=["y", "i", "c"])
    for name, more, stored in (("", {}, ["w"]), ("-bias", {"b": real(3)}, ["w", "b"]), ("-state", {"b": real(3), "p": real("n", 3, 2)}, ["w", "b"])):
        save(f"causal{name}", "CausalConvWithState", {"x": real("n", 3, 5), "w": real(3, 1, 3), **more}, stored,
             outputs=["y", "s"], activation="silu" if more else "none")
    heads = {key: real(2, "m", 8) for key in "qkv"}
    decay, rate = (lambda turn: -abs(numbers(2, 3 + turn, 2))), (lambda turn: abs(numbers(2, 3 + turn, 2)) / 2)
    state = {"p": real(2, 2, 4, 4)}
    for rule, more in (("linear", {}), ("gated", {**state, "d": decay}), ("delta", {**state, "d": None, "r": rate}), ("gated_delta", {**state, "d": decay, "r": rate})):
        save(f"linear-attention-{rule}", "LinearAttention", {**heads, **more}, outputs=["y", "s"], update_rule=rule, q_num_heads=2, kv_num_heads=2)
    angles = np.arange(32).reshape(8, 4)
    tables = {"c": fixed(np.cos(angles).astype(np.float32).round(3)), "s": fixed(np.sin(angles).astype(np.float32).round(3))}
    for name, x, places, attributes in (
        ("offset", real(2, 3, 16), fixed(np.array([2], np.int64)), {"num_heads": 2}),
        ("places", real(2, 3, 16), below(8, 2, 3), {"num_heads": 2}),
        ("pairs", real(2, 3, 16), below(8, 2, 3), {"num_heads": 2, "interleaved": 1}),
        ("heads", real(2, 2, 3, 8), below(8, 2, 3), {}),
        ("part", real(2, 3, 32), below(8, 2, 3), {"num_heads": 2, "rotary_embedding_dim": 8}),
    ):
        save(f"turned-{name}", "RotaryEmbedding", {"x": x, "p": places, **tables}, ["c", "s"], **attributes)


def attentions():
    """Attention operators of ONNX Runtime, with their masks and caches."""
    rng = np.random.default_rng(11)
    batch, heads, size = 2, 2, 4
    hidden = heads * size

    def numbers(*shape):
        return rng.uniform(-2, 2, shape).round(2).astype(np.float32)

    def save(name, operator, inputs, outputs, stored=(), **attributes):
        """Inputs are functions of the turn, by name; the first turns differ in their sizes."""
        runs = [{key: make(turn) for key, make in inputs.items() if make} for turn in range(3)]
        types = {key: h.np_dtype_to_tensor_dtype(value.dtype) for key, value in runs[0].items()}
        graph = h.make_graph(
            [h.make_node(operator, [key if make else "" for key, make in inputs.items()], outputs,
                         domain="com.microsoft", **attributes)],
            "g",
            [h.make_tensor_value_info(key, types[key], [None] * value.ndim) for key, value in runs[0].items() if key not in stored],
            [h.make_tensor_value_info(key, F, None) for key in outputs if key],
            [nh.from_array(runs[0][key], key) for key in stored],
        )
        imports = [h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)]
        model = h.make_model(graph, opset_imports=imports, ir_version=10)
        keep("grouped" if operator == "GroupQueryAttention" else "attention", name, model, [{key: value for key, value in run.items() if key not in stored} for run in runs])

    def rows(of, width=hidden):
        return lambda turn: numbers(batch, of + turn, width)

    def flags(*shape, least=1):
        """Flags of keys that are seen; the first keys always are."""
        made = rng.integers(0, 2, shape).astype(np.int32)
        made[..., :least] = 1
        return made

    three = {"q": rows(3), "k": rows(3), "v": rows(3)}
    bias = lambda turn: numbers(3 * hidden)
    for name, more, outputs, attributes in (
        ("bias", {"bias": bias}, ["y"], {}),
        ("scale", {}, ["y"], {"scale": 0.2}),
        ("causal", {"bias": bias}, ["y"], {"unidirectional": 1}),
        ("lengths", {"bias": None, "m": lambda turn: np.array([2 + turn, 3], np.int32)}, ["y"], {}),
        ("flags", {"bias": bias, "m": lambda turn: flags(batch, 3 + turn)}, ["y"], {}),
        ("flags-of-rows", {"bias": None, "m": lambda turn: flags(batch, 3 + turn, 3 + turn)}, ["y"], {}),
        ("filter", {"bias": None, "m": lambda turn: flags(batch, 3 + turn, least=0)}, ["y"], {"mask_filter_value": -1.5}),
        ("added", {"bias": None, "m": None, "a": lambda turn: numbers(1, heads, 3 + turn, 3 + turn)}, ["y"], {}),
        ("added-to-flags", {"bias": None, "m": lambda turn: flags(batch, 3 + turn), "a": lambda turn: numbers(batch, 1, 3 + turn, 3 + turn)}, ["y"], {}),
        ("present", {}, ["y", "pk", "pv"], {}),
        ("past", {"bias": bias, "m": None, "a": None, "ik": lambda turn: numbers(batch, heads, 2, size),
                  "iv": lambda turn: numbers(batch, heads, 2, size)}, ["y", "pk", "pv"], {}),
        ("past-masked", {"bias": None, "m": lambda turn: flags(batch, 5 + turn), "a": lambda turn: numbers(1, 1, 3 + turn, 5 + turn),
                         "ik": lambda turn: numbers(batch, heads, 2, size), "iv": lambda turn: numbers(batch, heads, 2, size)},
         ["y", "pk", "pv"], {"unidirectional": 1}),
        ("past-scores", {"bias": None, "m": None, "a": None, "ik": lambda turn: numbers(batch, heads, 2, size),
                         "iv": lambda turn: numbers(batch, heads, 2, size)}, ["y", "pk", "pv", "s"], {}),
    ):
        stored = ["bias"] if more.get("bias") else []
        save(f"heads-{name}", "MultiHeadAttention", {**three, **more}, outputs, stored, num_heads=heads, **attributes)
    save("heads-cross", "MultiHeadAttention", {"q": rows(2), "k": rows(5), "v": rows(5, heads * 3)}, ["y"], num_heads=heads)
    save("heads-cross-kept", "MultiHeadAttention",
         {"q": rows(2), "k": lambda turn: numbers(batch, heads, 4 + turn, size), "v": lambda turn: numbers(batch, heads, 4 + turn, size)},
         ["y"], num_heads=heads)

    x = lambda turn: numbers(batch, 3 + turn, 6)
    whole = {"x": x, "w": lambda turn: numbers(6, 3 * hidden), "b": bias}
    past = lambda turn: numbers(2, batch, heads, 2, size)
    for name, more, outputs, attributes in (
        ("plain", {}, ["y"], {}),
        ("causal", {}, ["y", "p"], {"unidirectional": 1}),
        ("lengths", {"m": lambda turn: np.array([2 + turn, 3], np.int32)}, ["y"], {}),
        ("spans", {"m": lambda turn: np.array([2 + turn, 3, 0, 1], np.int32)}, ["y"], {}),
        ("flags", {"m": lambda turn: flags(batch, 3 + turn)}, ["y"], {}),
        ("flags-of-rows", {"m": lambda turn: flags(batch, 3 + turn, 3 + turn)}, ["y"], {"scale": 0.5}),
        ("past", {"m": None, "i": past}, ["y", "p"], {"unidirectional": 1}),
        ("added", {"m": None, "i": None, "a": lambda turn: numbers(batch, heads, 3 + turn, 3 + turn)}, ["y"], {}),
        ("past-flags", {"m": lambda turn: flags(batch, 5 + turn), "i": past}, ["y", "p"], {}),
    ):
        save(f"whole-{name}", "Attention", {**whole, **more}, outputs, ["w", "b"], num_heads=heads, **attributes)
    sizes = {"x": x, "w": lambda turn: numbers(6, 2 * hidden + heads * 3), "b": lambda turn: numbers(2 * hidden + heads * 3)}
    save("whole-sizes", "Attention", sizes, ["y"], ["w", "b"], num_heads=heads, qkv_hidden_sizes=[hidden, hidden, heads * 3])

    def quantised(scales, dtype, zero):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return {
            "x": lambda turn: rng.integers(0, 255, (batch, 3 + turn, 6)).astype(np.uint8),
            "w": lambda turn: rng.integers(low, high, (6, 3 * hidden)).astype(dtype),
            "b": bias,
            "xs": lambda turn: np.float32(0.02),
            "ws": lambda turn: np.float32(0.01) if scales == 1 else rng.uniform(0.005, 0.02, scales).astype(np.float32),
            "m": None,
            "xz": lambda turn: np.uint8(127),
            "wz": lambda turn: np.array(zero, dtype) if scales == 1 else np.full(scales, zero, dtype),
        }

    stored = ["w", "b", "xs", "ws", "xz", "wz"]
    save("bytes", "QAttention", quantised(1, np.int8, 3), ["y"], stored, num_heads=heads)
    save("bytes-unsigned", "QAttention", quantised(1, np.uint8, 130), ["y"], stored, num_heads=heads, unidirectional=1)
    save("bytes-columns", "QAttention", quantised(3 * hidden, np.int8, 0), ["y"], stored, num_heads=heads)
    save("bytes-mask", "QAttention", {**quantised(1, np.int8, 0), "m": lambda turn: flags(batch, 3 + turn)}, ["y"], stored, num_heads=heads)
    save("bytes-past", "QAttention", {**quantised(1, np.int8, 0), "i": past}, ["y", "p"], stored, num_heads=heads, unidirectional=1)

    # The runtime accepts several new tokens after others only for one sequence.
    heads, keys, positions, size = 4, 2, 16, 16
    angles = rng.uniform(-3, 3, (positions, size // 2))
    cos, sin = (lambda turn: np.cos(angles).round(3).astype(np.float32)), (lambda turn: np.sin(angles).round(3).astype(np.float32))

    def grouped(new, kept, lengths=None, total=None, packed=False, most=None, batch=1):
        """Inputs for new tokens of each turn, after as many in the cache."""
        width = keys * size
        new, kept = [[it] * 3 if isinstance(it, int) else it for it in (new, kept)]

        def of(turn):
            return total[turn] if total else new[turn] + kept[turn]

        made = {"q": lambda turn: numbers(batch, new[turn], heads * size + (2 * width if packed else 0))}
        for key in "kv":
            made[key] = None if packed else lambda turn: numbers(batch, new[turn], width)
        for key in ("ik", "iv"):
            made[key] = lambda turn: numbers(batch, keys, most or kept[turn], size)
        made["l"] = lambda turn: np.array(lengths[turn] if lengths else [of(turn) - 1] * batch, np.int32)
        made["t"] = lambda turn: np.array(of(turn), np.int32)
        return made

    turned = {"cos": cos, "sin": sin}
    all_outputs = ["y", "pk", "pv"]
    ragged = {"lengths": [[4, 2], [3, 5], [2, 2]], "total": [5, 6, 3], "batch": 2}
    for name, inputs, attributes in (
        ("prompt", grouped([3, 4, 5], 0, batch=2), {}),
        ("step", grouped(1, [3, 4, 5], batch=3), {}),
        ("several", grouped([2, 3, 4], 3), {}),
        ("packed", grouped([3, 1, 2], [0, 3, 4], packed=True), {}),
        ("scale", grouped(1, [3, 4, 5]), {"scale": 0.3}),
        ("limit", grouped([3, 1, 2], [0, 3, 4]), {"softcap": 0.5}),
        ("smooth", grouped([3, 1, 2], [0, 3, 4]), {"smooth_softmax": 1}),
        ("window", grouped([5, 1, 2], [0, 5, 4]), {"local_window_size": 2}),
        ("both-ways", grouped([3, 4, 5], 0), {"causal": 0}),
        ("buffer", grouped(1, [3, 4, 5], most=8), {}),
        ("ragged", grouped(1, 0, most=8, **ragged), {}),
        ("ragged-grows", grouped(1, [4, 5, 2], **ragged), {}),
        ("turned", {**grouped([3, 1, 2], [0, 3, 4]), **turned}, {"do_rotary": 1}),
        ("turned-pairs", {**grouped([3, 1, 2], [0, 3, 4]), **turned}, {"do_rotary": 1, "rotary_interleaved": 1}),
        ("turned-ragged", {**grouped(1, 0, most=8, **ragged), **turned}, {"do_rotary": 1}),
        ("turned-packed", {**grouped([3, 1, 2], [0, 3, 4], packed=True), **turned}, {"do_rotary": 1}),
        ("positions", {**grouped(1, [3, 4, 5]), **turned, "p": lambda turn: np.array([[5 + turn]], np.int64)}, {"do_rotary": 1}),
        ("positions-prompt", {**grouped([3, 4, 5], 0), **turned, "p": lambda turn: np.array([range(3 + turn)], np.int64)}, {"do_rotary": 1}),
        ("added", {**grouped(1, [3, 4, 5]), "cos": None, "sin": None, "p": None, "a": lambda turn: numbers(1, heads, 1, 4 + turn)}, {}),
        ("sinks", {**grouped([3, 1, 2], [0, 3, 4]), "cos": None, "sin": None, "p": None, "a": None, "h": lambda turn: numbers(heads)}, {}),
    ):
        attributes = {"num_heads": heads, "kv_num_heads": keys, **attributes}
        save(f"grouped-{name}", "GroupQueryAttention", inputs, all_outputs, **attributes)
    for kind in (1, 2):
        save(f"grouped-scores-{kind}", "GroupQueryAttention", grouped([3, 1, 2], [0, 3, 4]), [*all_outputs, "s"],
             num_heads=heads, kv_num_heads=keys, qk_output=kind)


def narrow():
    """Numbers of few bits: stored, cast, quantised with scales of axes and blocks, and in products."""
    rng = np.random.default_rng(13)

    def numbers(*shape):
        return rng.uniform(-2, 2, shape).round(2).astype(np.float32)

    def save(name, nodes, inputs, stored=(), output=F):
        runs = [{key: make(turn) for key, make in inputs.items()} for turn in range(3)]
        types = {key: h.np_dtype_to_tensor_dtype(value.dtype) for key, value in runs[0].items()}
        graph = h.make_graph(
            nodes, "g",
            [h.make_tensor_value_info(key, types[key], [None] * value.ndim) for key, value in runs[0].items()],
            [h.make_tensor_value_info("y", output, None)],
            list(stored),
        )
        imports = [h.make_opsetid("", 23), h.make_opsetid("com.microsoft", 1)]
        keep("narrow", name, h.make_model(graph, opset_imports=imports, ir_version=11), runs)

    def x(*shape):
        return {"x": lambda turn: numbers(1 + turn, *shape)}

    def packed(name, kind, *shape):
        low, high = {T.INT4: (-8, 8), T.UINT4: (0, 16)}[kind]
        return h.make_tensor(name, kind, shape, rng.integers(low, high, shape).ravel())

    def scales(name, *shape):
        return nh.from_array(rng.uniform(0.05, 0.3, shape).astype(np.float32), name)

    def half(name, kind, *shape):
        return h.make_tensor(name, kind, shape, numbers(*shape).ravel())

    product = h.make_node("MatMul", ["x", "b"], ["y"])
    for name, kind in (("int4", T.INT4), ("uint4", T.UINT4)):
        lower = h.make_node("DequantizeLinear", ["w", "s", "z"], ["b"], axis=1)
        save(f"{name}-columns", [lower, product], x(6), [packed("w", kind, 6, 5), scales("s", 5), packed("z", kind, 5)])
        lower = h.make_node("DequantizeLinear", ["w", "s", "z"], ["b"], axis=0, block_size=4)
        save(f"{name}-blocks", [lower, product], x(12), [packed("w", kind, 12, 5), scales("s", 3, 5), packed("z", kind, 3, 5)])
        lower = h.make_node("DequantizeLinear", ["w", "s"], ["b"], axis=1, block_size=2)
        save(f"{name}-rows", [lower, product], x(6), [packed("w", kind, 6, 4), scales("s", 6, 2)])
        there = [h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1), h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1)]
        save(f"{name}-there-and-back", there, x(6), [scales("s"), packed("z", kind)])
    for name, kind in (("int16", np.int16), ("uint16", np.uint16)):
        zero = nh.from_array(np.array(7 if kind == np.int16 else 30000, kind), "z")
        fine = nh.from_array(np.float32(0.0001), "s")
        there = [h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
        save(f"{name}-there-and-back", there, x(6), [fine, zero])
        there = [h.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], domain="com.microsoft")]
        save(f"{name}-contributed", there, x(6), [fine, zero], h.np_dtype_to_tensor_dtype(np.dtype(kind)))
        weights = [packed("w", T.INT4, 6, 5), scales("ws", 5)]
        mixed = [
            h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), h.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
            h.make_node("DequantizeLinear", ["w", "ws"], ["b"], axis=1), h.make_node("MatMul", ["a", "b"], ["y"]),
        ]
        save(f"{name}-mixed", mixed, x(6), [fine, zero, *weights])
    computed = [h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1)]
    save("computed-scales", computed, {
        "q": lambda turn: rng.integers(0, 255, (2, 3 + turn, 2)).astype(np.uint8), "s": lambda turn: rng.uniform(0.1, 1, 3 + turn).astype(np.float32),
        "z": lambda turn: rng.integers(0, 255, 3 + turn).astype(np.uint8)})
    save("computed-quantisation", [h.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=-1)], {
        "x": lambda turn: numbers(2, 3 + turn), "s": lambda turn: rng.uniform(0.01, 0.1, 3 + turn).astype(np.float32),
        "z": lambda turn: rng.integers(-100, 100, 3 + turn).astype(np.int8)}, output=T.INT8)
    blocks = [h.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=1, block_size=3, output_dtype=T.INT8)]
    save("quantised-blocks", blocks, {"x": lambda turn: numbers(1 + turn, 6), "s": lambda turn: rng.uniform(0.01, 0.1, (1 + turn, 2)).astype(np.float32)}, output=T.INT8)
    for name, kind in (("bfloat16", T.BFLOAT16), ("float8e4m3fn", T.FLOAT8E4M3FN), ("float8e5m2", T.FLOAT8E5M2)):
        save(f"{name}-cast", [h.make_node("Cast", ["x"], ["h"], to=kind), h.make_node("Cast", ["h"], ["y"], to=F)], x(6))
        save(f"{name}-stored", [h.make_node("Cast", ["w"], ["b"], to=F), product], x(6), [half("w", kind, 6, 5)])
    for name, kind in (("float8e4m3fn", T.FLOAT8E4M3FN), ("float8e5m2", T.FLOAT8E5M2)):
        there = [h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
        save(f"{name}-there-and-back", there, x(6), [scales("s"), h.make_tensor("z", kind, [], [0.0])])

    def bits(name, of, rows, columns, block, zeros=None, groups=False):
        """A product with packed weights; the last block may be incomplete."""
        blocks = -(-columns // block)
        stored = [
            nh.from_array(rng.integers(0, 256, (rows, blocks, block * of // 8)).astype(np.uint8), "w"),
            nh.from_array(rng.uniform(0.01, 0.1, rows * blocks).astype(np.float32), "s"),
        ]
        if zeros == "packed":
            stored.append(nh.from_array(rng.integers(0, 256, rows * (-(-blocks * of // 8))).astype(np.uint8), "z"))
        elif zeros == "real":
            stored.append(nh.from_array(rng.uniform(0, 2**of - 1, (rows, blocks)).astype(np.float32), "z"))
        if groups:
            stored.append(nh.from_array(rng.integers(0, blocks, columns).astype(np.int32), "g"))
        names = ["x", "w", "s", "z" if zeros else "", "g" if groups else ""]
        node = h.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=columns, N=rows, bits=of, block_size=block)
        save(f"product-{name}", [node], x(columns), stored)

    for of in (4, 8):
        bits(f"{of}", of, 6, 32, 16)
        bits(f"{of}-packed", of, 6, 48, 16, "packed")
        bits(f"{of}-ragged", of, 5, 40, 16)
        bits(f"{of}-ragged-packed", of, 5, 40, 16, "packed")
    bits("4-real", 4, 6, 48, 16, "real")
    bits("4-groups", 4, 6, 48, 16, groups=True)


def images():
    """Resized tensors: by scales and sizes, of sets of operators old and new, alone and between convolutions."""
    rng = np.random.default_rng(23)

    def numbers(*shape):
        return rng.uniform(-2, 2, shape).round(2).astype(np.float32)

    def save(name, nodes, shape, stored, opset=19, make=numbers, sizes=((2, 3), (4, 2), (3, 5))):
        """`shape` has None where sizes differ from run to run."""
        runs = []
        for given in sizes:
            given = iter(given)
            runs.append({"x": make(*[next(given) if size is None else size for size in shape])})
        kind = h.np_dtype_to_tensor_dtype(runs[0]["x"].dtype)
        graph = h.make_graph(
            nodes,
            "g",
            [h.make_tensor_value_info("x", kind, shape)],
            [h.make_tensor_value_info("y", kind, None)],
            [nh.from_array(np.asarray(array), key) for key, array in stored.items()],
        )
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10)
        keep("images", name, model, runs)

    def floats(*values):
        return np.array(values, np.float32)

    for mode in ("nearest", "linear"):
        for factor in (2, 3):
            node = h.make_node("Upsample", ["x", "s"], ["y"], mode=mode)
            save(f"upsample-{mode}-{factor}", [node], [1, 2, None, None], {"s": floats(1, 1, factor, factor)}, 9)
            node = h.make_node("Resize", ["x", "s"], ["y"], mode=mode)
            save(f"resize-10-{mode}-{factor}", [node], [1, 2, None, None], {"s": floats(1, 1, factor, factor)}, 10)
        node = h.make_node("Resize", ["x", "s"], ["y"], mode=mode)
        save(f"resize-10-{mode}-half", [node], [1, 2, 4, 6], {"s": floats(1, 1, 0.5, 0.5)}, 10, sizes=((), (), ()))
        node = h.make_node("Upsample", ["x"], ["y"], mode=mode, scales=[1.0, 1.0, 2.0, 2.0])
        save(f"upsample-7-{mode}", [node], [1, 2, None, None], {}, 7)
    wide = np.array([4, 7], np.int64)
    for coordinates in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"):
        for mode in ("nearest", "linear", "cubic"):
            more = {"mode": mode, "coordinate_transformation_mode": coordinates}
            node = h.make_node("Resize", ["x", "", "", "s"], ["y"], axes=[2, 3], **more)
            save(f"sizes-{coordinates}-{mode}", [node], [1, 3, None, None], {"s": wide})
    for name, scale in (("half", 0.5), ("one and a half", 1.5)):
        node = h.make_node("Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode="asymmetric")
        save(f"scaled by {name}", [node], [1, 3, None, None], {"s": floats(1, 1, scale, scale)})
    node = h.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    save("volume", [node], [1, 2, None, 4, None], {"s": floats(1, 1, 2, 3, 1.5)})
    save("line", [node], [1, 2, None], {"s": floats(1, 1, 2.5)}, sizes=((4,), (5,), (7,)))
    smooth = h.make_node("Resize", ["x", "", "", "s"], ["y"], mode="linear", antialias=1, axes=[2, 3])
    save("antialiased", [smooth], [1, 2, 11, 7], {"s": np.array([4, 3], np.int64)}, sizes=((), (), ()))
    for policy in ("not_larger", "not_smaller"):
        node = h.make_node(
            "Resize", ["x", "", "", "s"], ["y"], mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy
        )
        save(policy, [node], [1, 2, 5, 7], {"s": wide}, sizes=((), (), ()))
    nearest = h.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric")
    for kind in (np.uint8, np.int8, np.int32):
        integers = lambda *shape: rng.integers(0, 100, shape).astype(kind)
        save(f"nearest-{np.dtype(kind).name}", [nearest], [1, 2, None, None], {"s": floats(1, 1, 2, 3)}, make=integers)
    whole = h.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    integers = lambda *shape: rng.integers(0, 100, shape).astype(np.uint8)
    save("linear-uint8", [whole], [1, 2, None, None], {"s": floats(1, 1, 2, 2)}, make=integers)
    for mode in ("nearest", "linear"):
        between = [
            h.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
            h.make_node("Relu", ["a"], ["b"]),
            h.make_node("Resize", ["b", "", "s"], ["c"], mode=mode),
            h.make_node("Conv", ["c", "v"], ["d"]),
            h.make_node("Resize", ["d", "", "t"], ["y"], mode=mode),
        ]
        weights = {"w": numbers(5, 3, 3, 3), "v": numbers(4, 5, 1, 1)}
        scales = {"s": floats(1, 1, 2, 2), "t": floats(1, 1, 3, 2)}
        save(f"between-convolutions-{mode}", between, [1, 3, None, None], weights | scales)
    other = [
        h.make_node("Shape", ["x"], ["shape"], start=2),
        h.make_node("Mul", ["shape", "two"], ["sizes"]),
        h.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", axes=[2, 3]),
    ]
    save("computed-sizes", other, [1, 2, None, None], {"two": np.array(2, np.int64)})


def sequences():
    """Sequences of tensors: made, changed, read and joined."""
    rng = np.random.default_rng(29)

    def save(name, nodes, stored=(), x=(2, 6), output=F, opset=19, floats=()):
        runs = [{"x": rng.uniform(-2, 2, x).round(2).astype(np.float32)} for _ in range(3)]
        graph = h.make_graph(
            nodes,
            "g",
            [h.make_tensor_value_info("x", F, x)],
            [h.make_tensor_value_info("y", output, None)],
            [nh.from_array(np.array(value, np.int64), key) for key, value in dict(stored).items()]
            + [nh.from_array(np.array(value, np.float32), key) for key, value in dict(floats).items()],
        )
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10)
        keep("sequences", name, model, runs)

    def node(operator, inputs, output="y", **attributes):
        return h.make_node(operator, inputs, [output], **attributes)

    double = node("Add", ["x", "x"], "d")
    pair = [double, node("SequenceConstruct", ["x", "d"], "s")]
    save("joined", [*pair, node("ConcatFromSequence", ["s"], axis=1)])
    save("stacked", [*pair, node("ConcatFromSequence", ["s"], axis=-1, new_axis=1)])
    save("stacked-11", [*pair, node("ConcatFromSequence", ["s"], axis=0, new_axis=1)], opset=11)
    for position in (0, 1, -1, -2):
        save(f"at-{position}", [*pair, node("SequenceAt", ["s", "p"])], {"p": position})
        erased = node("SequenceErase", ["s", "p"], "t")
        save(f"erased-{position}", [*pair, erased, node("ConcatFromSequence", ["t"], axis=0)], {"p": position})
        square = node("Mul", ["x", "x"], "q")
        inserted = node("SequenceInsert", ["s", "q", "p"], "t")
        last = node("ConcatFromSequence", ["t"], axis=0)
        save(f"inserted-{position}", [*pair, square, inserted, last], {"p": position})
    empty = node("SequenceEmpty", [], "e")
    grown = [empty, double, node("SequenceInsert", ["e", "x"], "s"), node("SequenceInsert", ["s", "d"], "t")]
    save("grown", [*grown, node("ConcatFromSequence", ["t"], axis=0)])
    save("last-erased", [*grown, node("SequenceErase", ["t"], "u"), node("ConcatFromSequence", ["u"], axis=0)])
    save("counted", [*grown, node("SequenceLength", ["t"])], output=I)
    third = node("SequenceAt", ["s", "p"])
    for name, inputs, stored in (("each", ["x"], {}), ("twos", ["x", "k"], {"k": 2}), ("parts", ["x", "k"], {"k": [1, 2, 3]})):
        for axis in (1, -1):
            split = node("SplitToSequence", inputs, "s", axis=axis)
            save(f"{name}-{axis}", [split, third], {"p": 2, **stored})
    alone = node("SplitToSequence", ["x"], "s", axis=1, keepdims=0)
    save("alone", [alone, third], {"p": -1})
    save("alone-stacked", [alone, node("ConcatFromSequence", ["s"], axis=0, new_axis=1)])

    # Sequences in branches alone.
    def branch(*inputs):
        nodes = [node("SequenceConstruct", inputs, "s"), node("ConcatFromSequence", ["s"], "z", axis=0)]
        return h.make_graph(nodes, "b", [], [h.make_tensor_value_info("z", F, None)])

    chosen = node("If", ["c"], then_branch=branch("x", "d"), else_branch=branch("d", "x"))
    total = node("ReduceSum", ["x"], "r", keepdims=0)
    save("branches", [double, total, node("Greater", ["r", "n"], "c"), chosen], opset=11, floats={"n": 0.0})


recurrences()
constructs()
images()
sequences()
fused()
attentions()
narrow()
contributed()
write()
