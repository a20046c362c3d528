"""From the form that a data set comes in to one prepared store: images, labels, domains, splits.

One public file per source; a name with a leading underscore is a helper.
"""
