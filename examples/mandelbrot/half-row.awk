#!/usr/bin/awk -f
# Half a row of the Mandelbrot set: job 2r is the left half of row r, job 2r+1 the right half.
BEGIN {
    columns = 120; rows = 48; depth = 400; shades = " .,:;-=+*oxOX#%@"
    job = ARGV[1]; row = int(job / 2); first = (job % 2) * columns / 2
    for (x = first; x < first + columns / 2; x++) {
        cr = -2.2 + 3.2 * x / columns; ci = -1.25 + 2.5 * (row + 0.5) / rows
        zr = zi = 0
        for (n = 0; n < depth && zr * zr + zi * zi < 4; n++) {
            t = zr * zr - zi * zi + cr; zi = 2 * zr * zi + ci; zr = t
        }
        line = line substr(shades, n == depth ? 16 : 1 + int(14 * log(n + 1) / log(depth)), 1)
    }
    printf "%s%s", line, job % 2 ? "\n" : ""
}
