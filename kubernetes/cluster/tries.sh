# shellcheck shell=sh
# What a pod with a slab tries, by its shell; a line that begins with "got" is one too many.
pool=/run/firstlight/bin/firstlight-pool
b=/bin/busybox
folder=$($b dirname "$FIRSTLIGHT_POOL")
# A second slab while it has the first.
$pool run --require --memory 64M -- $b sh -c "$pool run --require --memory 64M -- $b true {memory} && echo got: a second slab
    echo has one" "{memory}" || echo got: no slab at all
for page in 2M 1G thp; do
    $pool run --require --page $page --memory 65M -- $b true "{memory}" && echo got: a larger slab
done
$pool grant --size 64M && echo got: a grant
$pool resize --page 2M --size 64M 1 && echo got: a resize
$pool drain && echo got: a drain
$pool fill off && echo got: a stop of filling
own=$($pool status --json | $b sed -n 's/.*"grant": *"\(grant-[^"]*\)".*/\1/p' | $b head -n 1)
[ -n "$own" ] || echo "got: no grant in its status"
$pool revoke "$own" && echo got: an end of its grant
$b touch "$folder/file" && echo got: a file in its folder
$b rm "$FIRSTLIGHT_POOL" && echo got: its socket removed
seen=$($b ls /run/firstlight | $b sort | $b xargs)
own=$($b basename "$folder")
case $folder in */2m-64m/*) own=2m-64m ;; esac
[ "$seen" = "$own bin" ] || echo "got: others: $seen"
$b ls "$folder" && echo got: a list of its folder
$pool status --json | $b grep -o 'default/vm-[0-9]*' | $b sed 's/^/got: the name of /'
echo it tried
