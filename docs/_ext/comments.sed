# What Doxygen would take for something else in a comment: <row> is a word, and @throws is a sentence without a type.
:again
s@(//.*)<([a-z_]+)>@\1\&lt;\2\&gt;@
t again
s/\@throws/@remark Errors:/
