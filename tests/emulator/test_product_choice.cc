/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithms of products are chosen before the first launch, stored on disk, and the same for all
 * ranks that share the choice: see kernels/cuda/products.c and product_cache.c. */
#include "cublasLt.h"
#include "cuda/products.h"
#include "tap.h"

#include <algorithm>
#include <stdlib.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 16 };

/* One GPU with a stream, and room for a few products. */
struct bench {
    struct mics_cuda_at at;
    char *memory;
};

static struct bench open_bench(void)
{
    struct bench x = {};

    x.at.multiprocessors = 1;
    CHECK_INT(mics_cuda_products_open(&x.at.products), cudaSuccess);
    CHECK_INT(cudaStreamCreate(&x.at.stream), cudaSuccess);
    CHECK_INT(cudaMalloc(&x.at.workspace, MICS_CUDA_WORKSPACE_BYTES), cudaSuccess);
    CHECK_INT(cudaMalloc((void **)&x.memory, 1 << 20), cudaSuccess);
    return x;
}

static void close_bench(struct bench *x)
{
    mics_cuda_products_close(x->at.products);
    CHECK_INT(cudaStreamDestroy(x->at.stream), cudaSuccess);
    cudaFree(x->at.workspace);
    cudaFree(x->memory);
}

/* out[N, n] (+)= a[N, k] b[n, k]', in memory of the bench. */
static struct mics_args_matmul product(const struct bench *x, uint32_t n, uint32_t k, bool add)
{
    struct mics_args_matmul args = {};

    args.out = x->memory;
    args.a = x->memory + (256 << 10);
    args.b = x->memory + (512 << 10);
    args.add = add ? args.out : NULL;
    args.m = N;
    args.n = args.ldout = n;
    args.k = args.lda = args.ldb = k;
    args.trans_b = true;
    return args;
}

/* Two shapes, which have five proposals of one form each, and one of two forms: GELU in bf16. */
struct shapes {
    struct mics_args_matmul args[3];
    struct mics_matmul_choice choices[3];
};

static struct shapes three_shapes(const struct bench *x)
{
    struct shapes shapes = {};

    shapes.args[0] = product(x, N, N, false);
    shapes.args[1] = product(x, N, 2 * N, true);
    shapes.args[2] = product(x, N, 4 * N, false);
    shapes.args[2].dtype = shapes.args[2].out_dtype = MICS_BF16;
    shapes.args[2].pre_gelu = x->memory + (768 << 10);
    shapes.args[2].bias = x->memory + (896 << 10);
    return shapes;
}

static cudaError_t prepare(const struct bench *x, struct shapes *shapes, bool given)
{
    return mics_cuda_products_prepare(&x->at, shapes->args, 3, given, shapes->choices);
}

/* The proposal that a choice is, as the emulated library counts them. */
static int proposal_of(const struct mics_matmul_choice *choice)
{
    cublasLtMatmulAlgo_t algo;

    memcpy(&algo, choice->algorithm, sizeof(algo));
    return (int)algo.data[6];
}

static void check_proposals(const struct shapes *shapes, int want)
{
    for (const struct mics_matmul_choice &choice : shapes->choices)
        CHECK_INT(proposal_of(&choice), want);
}

static void set_fast(const char *proposal)
{
    setenv("MICS_EMULATED_FAST_PROPOSAL", proposal, 1);
}

/* All lines of the level, concatenated; "" for none. */
static std::string notes(const struct bench *x, int level)
{
    char text[MICS_CUDA_NOTE_BYTES];
    std::string all;
    int found;

    while (mics_cuda_products_next_note(x->at.products, &found, text))
        if (found == level)
            all += std::string(text) + "\n";
    return all;
}

static void check_text(const std::string &got, const std::string &want)
{
    CHECK_STR(got.c_str(), want.c_str());
}

static std::string temporary;

/* An empty folder for the cache from now on; returns its file's name. */
static std::string fresh_cache(void)
{
    static int number;
    const std::string folder = temporary + "/" + std::to_string(++number);

    setenv("XDG_CACHE_HOME", folder.c_str(), 1);
    return folder + "/mics/products-emulated-compute-capability-9.0-cuBLASLt-130000";
}

static std::string read_text(const std::string &path)
{
    std::string text;
    FILE *in = fopen(path.c_str(), "rb");

    for (int c; in && (c = getc(in)) != EOF;)
        text += (char)c;
    if (in)
        fclose(in);
    return text;
}

static void write_text(const std::string &path, const std::string &text)
{
    FILE *out = fopen(path.c_str(), "wb");

    CHECK(out != NULL);
    CHECK_INT(fwrite(text.data(), 1, text.size(), out), text.size());
    CHECK_INT(fclose(out), 0);
}

/* Choose for three shapes on a new GPU; *warning is what was warned of. Returns how many products
 * were run. */
static unsigned long choose(struct shapes *shapes, std::string *warning)
{
    struct bench x = open_bench();
    const unsigned long before = emu_lt_products();

    *shapes = three_shapes(&x);
    CHECK_INT(prepare(&x, shapes, false), cudaSuccess);
    const unsigned long ran = emu_lt_products() - before;
    *warning = notes(&x, 0);
    close_bench(&x);
    return ran;
}

static void the_fastest_of_five_proposals_is_taken(void)
{
    static const char *const fast[] = {"0", "1", "3", "4"};
    struct shapes shapes;
    std::string warning;

    for (const char *proposal : fast) {
        fresh_cache();
        set_fast(proposal);
        choose(&shapes, &warning);
        check_text(warning, "");
        for (int i = 0; i < 2; i++)
            CHECK_INT(proposal_of(&shapes.choices[i]), atoi(proposal));
        CHECK_INT(shapes.choices[0].bias, 0);
        CHECK_INT(shapes.choices[2].bias, 1);
    }
}

static void no_more_than_four_are_timed_again_over_all_forms(void)
{
    struct shapes shapes;
    std::string warning;

    fresh_cache();
    set_fast("0");
    choose(&shapes, &warning); /* the clock is up after the first product of each GPU */
    fresh_cache();
    struct bench x = open_bench();
    shapes = three_shapes(&x);
    CHECK_INT(mics_cuda_products_prepare(&x.at, shapes.args, 1, false, shapes.choices),
              cudaSuccess);
    const unsigned long before = emu_lt_products();
    CHECK_INT(mics_cuda_products_prepare(&x.at, shapes.args + 2, 1, false, shapes.choices + 2),
              cudaSuccess);
    /* five of each form, two runs of each but of those that are refused, and four runs of four */
    CHECK_INT(emu_lt_products() - before, 2 * (4 * 2 + 1) + 4 * 4);
    const std::string lines = notes(&x, 2);
    CHECK(lines.find("product [16, 16] of 64, nt, bf16 to bf16, bias, GELU") != std::string::npos);
    CHECK(lines.find(" of 10, with its bias") != std::string::npos);
    close_bench(&x);
}

static void what_is_in_the_cache_is_not_timed_again(void)
{
    struct shapes first, second;
    std::string warning;
    const std::string path = fresh_cache();

    set_fast("1");
    CHECK(choose(&first, &warning) > 0);
    check_text(warning, "");
    CHECK(read_text(path).find("mics matrix products 1\nemulated, compute capability 9.0, cuBLASLt "
                               "130000\n[16, 16] of 16, nt, fp32 to fp32") == 0);
    set_fast("0");
    CHECK_INT(choose(&second, &warning), 0);
    check_text(warning, "");
    CHECK(memcmp(first.choices, second.choices, sizeof(first.choices)) == 0);
}

static void products_run_as_they_were_chosen_and_first_proposals_else(void)
{
    struct bench x = open_bench();
    struct shapes shapes = three_shapes(&x);

    fresh_cache();
    set_fast("3");
    CHECK_INT(prepare(&x, &shapes, false), cudaSuccess);
    set_fast("-1");
    /* 1 + 2^-24 + 2^-24, of which the second part has the last: 1 where parts are rounded */
    float a[N * N] = {1, 0x1p-24f, 0, 0, 0x1p-24f}, one[N * N], sums[2];
    for (float &number : one)
        number = 1;
    for (int other = 0; other < 2; other++) {
        struct mics_args_matmul args = shapes.args[0];

        args.m = other ? N / 2 : N; /* a shape that was not prepared */
        CHECK_INT(cudaMemcpy((void *)(uintptr_t)args.a, a, sizeof(a), cudaMemcpyHostToDevice),
                  cudaSuccess);
        CHECK_INT(cudaMemcpy((void *)(uintptr_t)args.b, one, sizeof(one), cudaMemcpyHostToDevice),
                  cudaSuccess);
        CHECK_INT(mics_cuda_matmul(&x.at, &args), cudaSuccess);
        CHECK_INT(cudaStreamSynchronize(x.at.stream), cudaSuccess);
        CHECK_INT(cudaMemcpy(&sums[other], args.out, sizeof(float), cudaMemcpyDeviceToHost),
                  cudaSuccess);
    }
    CHECK(sums[0] == 1);
    CHECK(sums[1] == 1 + 0x1p-23f);
    close_bench(&x);
}

static void measuring_adds_nothing_to_sums_that_come_later(void)
{
    struct bench x = open_bench();
    struct shapes shapes = three_shapes(&x);
    const float one = 1;
    float sum = 0;

    fresh_cache();
    set_fast("0");
    CHECK_INT(prepare(&x, &shapes, false), cudaSuccess);
    CHECK_INT(cudaMemset(x.memory, 0, 1 << 20), cudaSuccess);
    CHECK_INT(cudaMemcpy(x.memory + (256 << 10), &one, sizeof(one), cudaMemcpyHostToDevice),
              cudaSuccess);
    CHECK_INT(cudaMemcpy(x.memory + (512 << 10), &one, sizeof(one), cudaMemcpyHostToDevice),
              cudaSuccess);
    for (int i = 0; i < 2; i++)
        CHECK_INT(mics_cuda_matmul(&x.at, &shapes.args[1]), cudaSuccess);
    CHECK_INT(cudaStreamSynchronize(x.at.stream), cudaSuccess);
    CHECK_INT(cudaMemcpy(&sum, x.memory, sizeof(sum), cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK(sum == 2);
    close_bench(&x);
}

/* Whether the cache has any entry, and its warning. */
static bool has_entries(std::string *warning)
{
    static const char key[] =
        "[16, 16] of 16, nt, fp32 to fp32, rows of 16, 16, 16, aligned to 128, "
        "128, 128, 128";
    struct mics_matmul_choice choice;
    struct mics_product_cache *cache =
        mics_product_cache_open("emulated, compute capability 9.0, cuBLASLt 130000");
    const char *text = mics_product_cache_warning(cache);
    const bool found = mics_product_cache_find(cache, key, &choice);

    *warning = text ? text : "";
    mics_product_cache_free(cache);
    return found;
}

static void a_cache_damaged_in_any_byte_or_truncated_is_not_used(void)
{
    const std::string path = fresh_cache();
    struct shapes shapes;
    std::string warning;
    int used = 0, silent = 0;

    choose(&shapes, &warning);
    const std::string whole = read_text(path);
    CHECK(has_entries(&warning));
    check_text(warning, "");
    for (size_t i = 0; i < whole.size(); i++)
        for (int bit = 0; bit < 8; bit++) {
            std::string damaged = whole;

            damaged[i] = (char)(damaged[i] ^ 1 << bit);
            write_text(path, damaged);
            used += has_entries(&warning);
            silent += warning.empty();
        }
    for (size_t length = 0; length < whole.size(); length++) {
        write_text(path, whole.substr(0, length));
        used += has_entries(&warning);
        silent += warning.empty();
    }
    write_text(path, whole + "\n");
    used += has_entries(&warning);
    silent += warning.empty();
    CHECK_INT(used, 0);
    CHECK_INT(silent, 0);
}

static void a_damaged_cache_causes_one_warning_and_is_replaced(void)
{
    const std::string path = fresh_cache();
    struct shapes shapes;
    std::string warning;

    choose(&shapes, &warning);
    std::string damaged = read_text(path);
    damaged[damaged.size() / 2] ^= 1;
    write_text(path, damaged);
    CHECK(choose(&shapes, &warning) > 0);
    check_text(warning,
               (path + ": the file is damaged; algorithms of matrix products are measured again\n")
                   .c_str());
    CHECK_INT(choose(&shapes, &warning), 0);
    check_text(warning, "");
}

/* As a cache of another GPU that was copied to this one's name. */
static void a_whole_cache_of_another_library_is_not_used(void)
{
    const std::string path = fresh_cache();
    const std::string other = path.substr(0, path.size() - 6) + "130100";
    struct shapes shapes;
    std::string warning;

    setenv("MICS_EMULATED_CUBLASLT", "130100", 1);
    choose(&shapes, &warning);
    unsetenv("MICS_EMULATED_CUBLASLT");
    CHECK(choose(&shapes, &warning) > 0); /* it has a file of its own */
    check_text(warning, "");
    CHECK_INT(rename(other.c_str(), path.c_str()), 0);
    CHECK(choose(&shapes, &warning) > 0);
    check_text(warning, (path + ": the file is of another version, GPU or library; algorithms of "
                                "matrix products are measured again\n")
                            .c_str());
}

static void an_algorithm_that_the_library_withdrew_is_measured_again(void)
{
    struct shapes shapes;
    std::string warning;

    fresh_cache();
    set_fast("1");
    choose(&shapes, &warning);
    set_fast("3");
    setenv("MICS_EMULATED_WITHDRAWN_PROPOSAL", "1", 1);
    CHECK(choose(&shapes, &warning) > 0);
    CHECK_INT(proposal_of(&shapes.choices[0]), 3);
    unsetenv("MICS_EMULATED_WITHDRAWN_PROPOSAL");
    CHECK_INT(choose(&shapes, &warning), 0);
    CHECK_INT(proposal_of(&shapes.choices[0]), 3);
}

static void entries_that_another_job_adds_meanwhile_are_kept(void)
{
    static const char tuning[] = "emulated, compute capability 9.0, cuBLASLt 130000";
    const std::string path = fresh_cache();
    struct mics_matmul_choice choices[2] = {}, found;

    choices[0].algorithm[63] = 7;
    choices[1].gelu = 1;
    struct mics_product_cache *one = mics_product_cache_open(tuning);
    struct mics_product_cache *two = mics_product_cache_open(tuning);
    mics_product_cache_put(one, "first", &choices[0]);
    mics_product_cache_put(two, "second", &choices[1]);
    mics_product_cache_save(one);
    mics_product_cache_save(two);
    CHECK(!mics_product_cache_warning(one) && !mics_product_cache_warning(two));
    mics_product_cache_free(one);
    mics_product_cache_free(two);
    one = mics_product_cache_open(tuning);
    CHECK(mics_product_cache_find(one, "first", &found) && found.algorithm[63] == 7 && !found.gelu);
    CHECK(mics_product_cache_find(one, "second", &found) && found.algorithm[63] == 0 && found.gelu);
    mics_product_cache_free(one);
    CHECK_INT(system(("test $(ls " + path + "* | wc -l) = 1").c_str()), 0); /* no scratch files */
}

/* Many at once: readers see a whole file all the time. */
static void jobs_that_write_at_the_same_time_leave_a_whole_file(void)
{
    enum { JOBS = 4, ROUNDS = 15 };
    const std::string path = fresh_cache();
    static const char tuning[] = "emulated, compute capability 9.0, cuBLASLt 130000";
    int bad = 0;

    for (int job = 0; job < JOBS; job++) {
        if (fork() != 0)
            continue;
        for (int round = 0; round < ROUNDS; round++) {
            const std::string key = std::to_string(job) + " " + std::to_string(round);
            struct mics_matmul_choice choice = {};
            struct mics_product_cache *cache = mics_product_cache_open(tuning);

            mics_product_cache_put(cache, key.c_str(), &choice);
            mics_product_cache_save(cache);
            if (mics_product_cache_warning(cache))
                _exit(1);
            mics_product_cache_free(cache);
        }
        _exit(0);
    }
    for (int job = 0; job < JOBS; job++) {
        int status;

        wait(&status);
        bad += status != 0;
    }
    CHECK_INT(bad, 0);
}

static void an_unusable_cache_causes_a_warning_and_no_failure(void)
{
    const std::string home = getenv("HOME") ? getenv("HOME") : "";
    struct shapes shapes;
    std::string warning;

    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    CHECK(choose(&shapes, &warning) > 0);
    CHECK(warning.find("/dev/null/mics/products-") == 0 &&
          warning.find("; algorithms of matrix products are ") != std::string::npos);
    CHECK_INT(std::count(warning.begin(), warning.end(), '\n'), 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK(choose(&shapes, &warning) > 0);
    check_text(warning, "neither XDG_CACHE_HOME nor HOME names a folder; algorithms of matrix "
                        "products are not kept\n");
    setenv("XDG_CACHE_HOME", "relative", 1); /* which the specification says to ignore */
    setenv("HOME", (temporary + "/home").c_str(), 1);
    CHECK(choose(&shapes, &warning) > 0);
    check_text(warning, "");
    CHECK_INT(access((temporary + "/home/.cache/mics").c_str(), F_OK), 0);
    setenv("HOME", home.c_str(), 1);
}

static void a_read_only_cache_is_used(void)
{
    const std::string path = fresh_cache(), folder = path.substr(0, path.rfind('/'));
    struct shapes shapes;
    std::string warning;

    if (geteuid() == 0)
        TAP_SKIP("root may write everywhere");
    choose(&shapes, &warning);
    CHECK_INT(chmod(folder.c_str(), 0555), 0);
    CHECK_INT(choose(&shapes, &warning), 0);
    check_text(warning, "");
    struct bench x = open_bench();
    shapes = three_shapes(&x);
    shapes.args[0].m = 2 * N;
    CHECK_INT(prepare(&x, &shapes, false), cudaSuccess);
    warning = notes(&x, 0);
    close_bench(&x);
    check_text(
        warning,
        (path + ": Permission denied; algorithms of matrix products are not kept\n").c_str());
    CHECK_INT(chmod(folder.c_str(), 0755), 0);
}

static void choices_of_another_rank_are_taken_without_timing(void)
{
    struct bench x = open_bench();
    struct shapes shapes, mine = three_shapes(&x);
    std::string warning;

    const std::string path = fresh_cache();
    set_fast("3");
    choose(&shapes, &warning);
    CHECK_INT(unlink(path.c_str()), 0);
    memcpy(mine.choices, shapes.choices, sizeof(mine.choices));
    const unsigned long before = emu_lt_products();
    CHECK_INT(prepare(&x, &mine, true), cudaSuccess);
    CHECK_INT(emu_lt_products() - before, 0);
    CHECK(access(path.c_str(), F_OK) != 0); /* the cache is the other's */
    CHECK_INT(prepare(&x, &mine, false), cudaSuccess);
    for (int i = 0; i < 3; i++)
        CHECK_INT(proposal_of(&mine.choices[i]), proposal_of(&shapes.choices[i]));
    mine.choices[0] = shapes.choices[1];
    CHECK_INT(prepare(&x, &mine, true), cudaErrorInvalidValue);
    close_bench(&x);
}

static void without_measuring_the_first_proposal_is_used_and_no_file_written(void)
{
    const std::string path = fresh_cache();
    struct shapes shapes;
    std::string warning;

    set_fast("1");
    choose(&shapes, &warning);
    const std::string before = read_text(path);
    setenv("MICS_CUDA_MEASURE", "0", 1);
    CHECK_INT(choose(&shapes, &warning), 0);
    check_proposals(&shapes, 0);
    CHECK(read_text(path) == before);
    const std::string none = fresh_cache();
    CHECK_INT(choose(&shapes, &warning), 0);
    CHECK(access(none.c_str(), F_OK) != 0);
    unsetenv("MICS_CUDA_MEASURE");
}

int main()
{
    char folder[] = "/tmp/mics-products-XXXXXX";

    if (!mkdtemp(folder))
        return 1;
    temporary = folder;
    TAP_RUN(the_fastest_of_five_proposals_is_taken);
    TAP_RUN(no_more_than_four_are_timed_again_over_all_forms);
    TAP_RUN(what_is_in_the_cache_is_not_timed_again);
    TAP_RUN(products_run_as_they_were_chosen_and_first_proposals_else);
    TAP_RUN(measuring_adds_nothing_to_sums_that_come_later);
    TAP_RUN(a_cache_damaged_in_any_byte_or_truncated_is_not_used);
    TAP_RUN(a_damaged_cache_causes_one_warning_and_is_replaced);
    TAP_RUN(a_whole_cache_of_another_library_is_not_used);
    TAP_RUN(an_algorithm_that_the_library_withdrew_is_measured_again);
    TAP_RUN(entries_that_another_job_adds_meanwhile_are_kept);
    TAP_RUN(jobs_that_write_at_the_same_time_leave_a_whole_file);
    TAP_RUN(an_unusable_cache_causes_a_warning_and_no_failure);
    TAP_RUN(a_read_only_cache_is_used);
    TAP_RUN(choices_of_another_rank_are_taken_without_timing);
    TAP_RUN(without_measuring_the_first_proposal_is_used_and_no_file_written);
    CHECK_INT(system(("rm -r " + temporary).c_str()), 0);
    return tap_done();
}
