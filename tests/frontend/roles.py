"""Kernels whose author wrote the roles and the named barriers between them."""

RELAY = """
@argus.kernel(num_warps=8)
def relay(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"],
          ROWS: al.constexpr = 32, COLUMNS: al.constexpr = 32):
    M, N = x.shape
    al.spec(out, lambda i, j: 2.0 * x[i, j])
    m0 = al.grid(al.cdiv(M, ROWS), persistent=True) * ROWS
    tile = al.shared((ROWS, COLUMNS), al.float32, layout=al.swizzle(3, 2, 3))
    full, free = al.named_barrier(256), al.named_barrier(256)
    al.role(load, (x, tile, full, free, m0), num_warps=4)
    al.role(double, (out, tile, full, free, m0), num_warps=4)

@argus.func
def load(x, tile, full, free, m0):
    rows, columns = tile.shape
    for n0 in range(0, x.shape[1], columns):
        piece = al.load(x[m0 : m0 + rows, n0 : n0 + columns], boundary_check=(0, 1))
        free.sync()
        al.store(tile[:, :], piece)
        full.arrive()

@argus.func
def double(out, tile, full, free, m0):
    rows, columns = tile.shape
    free.arrive()
    for n0 in range(0, out.shape[1], columns):
        full.sync()
        piece = al.load(tile[:, :])
        free.arrive()
        al.store(out[m0 : m0 + rows, n0 : n0 + columns], 2.0 * piece, boundary_check=(0, 1))
"""
"""A role hands tiles to another one: `full` says that the tile is written, `free` that it is read."""

PINGPONG = """
@argus.kernel(num_warps=12)
def pingpong(a: al.Tensor[al.bfloat16, "M K"], b: al.Tensor[al.bfloat16, "N K"], c: al.Tensor[al.float32, "M N"],
             BLOCK: al.constexpr = 64, DEPTH: al.constexpr = 32):
    M, K = a.shape
    N = b.shape[0]
    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    p0, p1 = al.grid(al.cdiv(M, 2 * BLOCK), al.cdiv(N, BLOCK), persistent=True)
    m0, n0 = p0 * 2 * BLOCK, p1 * BLOCK
    sa = al.shared((2 * BLOCK, DEPTH), al.bfloat16, layout=al.swizzle(2, 3, 3))
    sb = al.shared((BLOCK, DEPTH), al.bfloat16, layout=al.swizzle(2, 3, 3))
    full, free = al.named_barrier(384), al.named_barrier(384)
    first, second = al.named_barrier(256), al.named_barrier(256)
    al.role(fill, (a, b, sa, sb, full, free, m0, n0), num_warps=4)
    al.role(multiply, (sa[:BLOCK, :], sb, c, m0, n0, full, free, first, second, K, False), num_warps=4)
    al.role(multiply, (sa[BLOCK:, :], sb, c, m0 + BLOCK, n0, full, free, second, first, K, True), num_warps=4)

@argus.func
def fill(a, b, sa, sb, full, free, m0, n0):
    rows, depth = sa.shape
    columns = sb.shape[0]
    for k0 in range(0, a.shape[1], depth):
        at = al.load(a[m0 : m0 + rows, k0 : k0 + depth], boundary_check=(0, 1))
        bt = al.load(b[n0 : n0 + columns, k0 : k0 + depth], boundary_check=(0, 1))
        free.sync()
        al.store(sa[:, :], at)
        al.store(sb[:, :], bt)
        full.arrive()

@argus.func
def multiply(sa, sb, c, m0, n0, full, free, own, other, deep, BEGINS: al.constexpr):
    rows, depth = sa.shape
    columns = sb.shape[0]
    free.arrive()
    if BEGINS:
        other.arrive()
    acc = al.zeros((rows, columns), al.float32)
    for k0 in range(0, deep, depth):
        full.sync()
        own.sync()
        acc = al.mma(sa, sb, acc)
        other.arrive()
        free.arrive()
    al.store(c[m0 : m0 + rows, n0 : n0 + columns], acc, boundary_check=(0, 1))
"""
"""Two roles multiply in turns what a third brings; what follows a product runs beside the other's."""

PRODUCT = """
@argus.kernel(num_warps=8)
def product(a: al.Tensor[al.bfloat16, "M K"], b: al.Tensor[al.bfloat16, "N K"], c: al.Tensor[al.bfloat16, "M N"],
            BLOCK: al.constexpr = 64, STAGES: al.constexpr = 3):
    M, K = a.shape
    N = b.shape[0]
    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    p0, p1 = al.grid(al.cdiv(M, BLOCK), al.cdiv(N, BLOCK))
    m0, n0 = p0 * BLOCK, p1 * BLOCK
    sa = al.shared((STAGES, BLOCK, 64), al.bfloat16, layout=al.swizzle(3, 3, 3))
    sb = al.shared((STAGES, BLOCK, 64), al.bfloat16, layout=al.swizzle(3, 3, 3))
    full = al.mbarrier(STAGES, 1)
    empty = al.mbarrier(STAGES, 4)
    al.role(multiply, (sa, sb, c, m0, n0, full, empty, K), num_warps=4, registers=240)
    al.role(bring, (a, b, sa, sb, m0, n0, full, empty), num_warps=1, registers=40)

@argus.func
def bring(a, b, sa, sb, m0, n0, full, empty):
    stages, rows, depth = sa.shape
    columns = sb.shape[1]
    for k0 in range(0, a.shape[1], depth):
        i = k0 // depth
        empty[i % stages].wait((i // stages + 1) % 2)
        full[i % stages].expect((rows + columns) * depth * 2)
        al.copy(sa[i % stages, :, :], a[m0 : m0 + rows, k0 : k0 + depth], boundary_check=(0, 1),
                instruction="tma.load", signal=full[i % stages])
        al.copy(sb[i % stages, :, :], b[n0 : n0 + columns, k0 : k0 + depth], boundary_check=(0, 1),
                instruction="tma.load", signal=full[i % stages])

@argus.func
def multiply(sa, sb, c, m0, n0, full, empty, deep):
    stages, rows, depth = sa.shape
    columns = sb.shape[1]
    acc = al.zeros((rows, columns), al.float32)
    for k0 in range(0, deep, depth):
        i = k0 // depth
        full[i % stages].wait(i // stages % 2)
        al.mma_fence()
        acc = al.mma(sa[i % stages, :, :], sb[i % stages, :, :], acc, instruction="wgmma_m64n64k16")
        al.mma_commit()
        al.mma_wait(0)
        empty[i % stages].arrive()
    al.store(c[m0 : m0 + rows, n0 : n0 + columns], acc.to(al.bfloat16), boundary_check=(0, 1))
"""
"""A matrix product of bulk copies and asynchronous products, which a ring of buffers with mbarriers keeps in step."""
