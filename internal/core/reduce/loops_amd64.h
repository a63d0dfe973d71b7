// The loops of all kernels, as macros over the operations on one vector.
//
//	DI  dst                 AX  offset of the next byte to work on
//	SI  first slice header  DX  offset of the end
//	BX  24 × number of sources, 24 being the size of a slice header
//	R9  not 0: scale
//	V15 scale   V14 canon   V13 flip   (see job)   V12…V10 constants of bfloat16
//	V0…V3 hold the results of four vectors while the sources go by. V4…V9 are
//	scratch, and so are CX, R8 and R10.
//
// A kernel is given as macros:
//
//	LD4(a, b, c, d)    load four vectors from R8 on, widening their elements; which
//	                   element goes where is up to this and ST4
//	ST4                narrow and store V0…V3 at DI + AX; they may be lost
//	LD(mem, reg)       load one vector, widening its elements
//	ST(reg, mem, tmp)  narrow and store it; reg may be lost
//	LD1(mem, xreg)     load one element into the lowest lane; may clobber R8
//	ST1(mem)           store that of V0
//	FLIP(reg)          done to each vector loaded and, again, to the result
//	OP(src, acc, tmp)  acc = acc op src; src may be lost
//	MUL(reg)           scale
//	CANON(reg, tmp)    the last step on a result
//	VB, ES             bytes in memory of a vector and of an element

// LOOP4 works on four vectors at a time while so many are left.
#define LOOP4(LD4, ST4, FLIP, OP, MUL, CANON, VB) \
	MOVQ DX, R10; \
	SUBQ AX, R10; \
	ANDQ $~(4*VB-1), R10; \
	ADDQ AX, R10; \
	JMP  test4; \
loop4: \
	MOVQ (SI), R8; \
	ADDQ AX, R8; \
	LD4(V0, V1, V2, V3); \
	FLIP(V0); \
	FLIP(V1); \
	FLIP(V2); \
	FLIP(V3); \
	MOVQ $24, CX; \
	JMP  more4; \
source4: \
	MOVQ (SI)(CX*1), R8; \
	ADDQ AX, R8; \
	LD4(V4, V5, V6, V7); \
	FLIP(V4); \
	FLIP(V5); \
	FLIP(V6); \
	FLIP(V7); \
	OP(V4, V0, V8); \
	OP(V5, V1, V9); \
	OP(V6, V2, V8); \
	OP(V7, V3, V9); \
	ADDQ $24, CX; \
more4: \
	CMPQ CX, BX; \
	JLT  source4; \
	FLIP(V0); \
	FLIP(V1); \
	FLIP(V2); \
	FLIP(V3); \
	TESTQ R9, R9; \
	JEQ  canon4; \
	MUL(V0); \
	MUL(V1); \
	MUL(V2); \
	MUL(V3); \
canon4: \
	CANON(V0, V8); \
	CANON(V1, V9); \
	CANON(V2, V8); \
	CANON(V3, V9); \
	ST4; \
	ADDQ $(4*VB), AX; \
test4: \
	CMPQ AX, R10; \
	JLT  loop4

// LOOP1 works on one vector at a time while one is left.
#define LOOP1(LD, ST, FLIP, OP, MUL, CANON, VB) \
	MOVQ DX, R10; \
	SUBQ AX, R10; \
	ANDQ $~(VB-1), R10; \
	ADDQ AX, R10; \
	JMP  test1; \
loop1: \
	MOVQ (SI), R8; \
	LD((R8)(AX*1), V0); \
	FLIP(V0); \
	MOVQ $24, CX; \
	JMP  more1; \
source1: \
	MOVQ (SI)(CX*1), R8; \
	LD((R8)(AX*1), V4); \
	FLIP(V4); \
	OP(V4, V0, V8); \
	ADDQ $24, CX; \
more1: \
	CMPQ CX, BX; \
	JLT  source1; \
	FLIP(V0); \
	TESTQ R9, R9; \
	JEQ  canon1; \
	MUL(V0); \
canon1: \
	CANON(V0, V8); \
	ST(V0, (DI)(AX*1), V8); \
	ADDQ $(VB), AX; \
test1: \
	CMPQ AX, R10; \
	JLT  loop1

// ELEMENTS works on one element at a time, in the lowest lane of a vector.
#define ELEMENTS(LD1, ST1, FLIP, OP, MUL, CANON, ES) \
	JMP  test; \
loop: \
	MOVQ (SI), R8; \
	LD1((R8)(AX*1), X0); \
	FLIP(V0); \
	MOVQ $24, CX; \
	JMP  more; \
source: \
	MOVQ (SI)(CX*1), R8; \
	LD1((R8)(AX*1), X4); \
	FLIP(V4); \
	OP(V4, V0, V8); \
	ADDQ $24, CX; \
more: \
	CMPQ CX, BX; \
	JLT  source; \
	FLIP(V0); \
	TESTQ R9, R9; \
	JEQ  canon; \
	MUL(V0); \
canon: \
	CANON(V0, V8); \
	ST1((DI)(AX*1)); \
	ADDQ $(ES), AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop
