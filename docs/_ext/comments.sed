# What Doxygen would take for something else in a comment: <row> is a word, @throws is a sentence without a type, and
# "Backward: " and "Source: " begin a paragraph.
:again
s@(//.*)<([a-z_]+)>@\1\&lt;\2\&gt;@
t again
s/\@throws/@remark Errors:/
s@^( *///) (Backward[^:]*|Source): @\1 \\par \2\n\1 @
